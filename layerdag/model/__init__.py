"""The networks and samplers: the faithful `reference` model and the `fast` one."""
