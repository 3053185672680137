"""Tables, figures and pages, made from an experiment's YAML and rows.

Nothing is imported here: the command refuses a wrong word before torch is loaded.
"""
