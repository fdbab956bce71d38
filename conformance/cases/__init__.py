"""The cases, by area. `catalog` imports all modules of this package."""
