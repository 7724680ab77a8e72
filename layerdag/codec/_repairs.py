"""Repairs of decoded jobs in plain words (docs/reference/attributes.md)."""

_WORDS = {
    "collective_of_one_rank": "collective with one rank in its group, made compute of equal time",
    "collective_that_is_not_simulated": "collective that ASTRA-sim refuses, substituted",
    "collective_without_group": "collective without a group, given its stage's ranks",
    "communication_named_as_compute": "communication under the name of a computation, renamed",
    "communication_order_added": "dependency added, so that all ranks communicate in one order",
    "compute_named_as_communication": "computation under the name of a communication, renamed",
    "compute_without_cost": "computation without FLOPs or bytes, given those of what it does state",
    "message_of_one_rank": "message in a job of one rank, made compute of equal time",
    "message_without_receiver": "message without a receiver, sent to the next stage",
    "message_without_sender": "message without a sender, sent by stage 0",
    "ranks_raised": "rank added, because the stages need more than were requested",
    "start_without_time": "first node of a rank too small to take 1 ns, enlarged",
    "world_collective_of_one_stage": "collective of all ranks in one stage only, run by that stage",
}


def repair_in_words(name: str) -> str:
    """Return what a repair did, in words; a name without any is returned with spaces."""
    return _WORDS.get(name, name.replace("_", " "))
