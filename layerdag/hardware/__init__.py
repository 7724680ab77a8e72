"""Knowledge about devices, number formats, operators and collectives, one table each."""
