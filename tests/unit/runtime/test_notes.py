"""Notes: what a reader did not understand."""

from layerdag.runtime.notes import MAX_WORDS, Note, NoteCollector, NoteKind, merge_notes


def test_equal_words_are_one_note_with_the_first_place():
    collector = NoteCollector("x.json")
    collector.add(NoteKind.DTYPE, "Float9", "no size", where="node 3")
    collector.add(NoteKind.DTYPE, "Float9", "no size", where="node 7", count=2)
    (note,) = collector.notes
    assert note == Note(NoteKind.DTYPE, "Float9", "x.json, node 3", "no size", 3)
    assert str(note) == "x.json, node 3: dtype 'Float9' (3 times): no size"


def test_words_are_shortened_and_their_number_is_bounded():
    collector = NoteCollector("x")
    for word in range(MAX_WORDS + 50):
        collector.add(NoteKind.KEY, f"{word:05}" * 40, "left out")
    assert len(collector.notes) == MAX_WORDS + 1
    assert collector.notes[-1].count == 50
    assert all(len(note.word) <= 80 for note in collector.notes)


def test_merged_notes_count_the_same_word_of_several_files_once():
    notes = [Note(NoteKind.UNIT, "fortnight", f"{file}.csv", "left out", 2) for file in "ab"]
    (merged,) = merge_notes(notes)
    assert (merged.place, merged.count) == ("a.csv", 4)
