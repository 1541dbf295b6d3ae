"""Read fetch logs from users' own tables, with the columns mapped by a YAML file."""
