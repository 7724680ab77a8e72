"""Flow graphs in files of other tools: DOT, GraphML, node-link JSON, WfFormat."""
