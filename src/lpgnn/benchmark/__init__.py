"""The field's benchmark: every method under one protocol and one budget, beside the controls.

protocol: the graphs, budgets and search that are the same for all; entries: one YAML file a method;
plan: from both to runs, the search before the reported ones; standings: means, paired differences
to the controls, ranks; page: the leaderboard, tables and pictures.
"""
