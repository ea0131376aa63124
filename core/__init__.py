"""What every other part speaks: types, seams, errors, keys, paths. Standard library only, but `config`."""
