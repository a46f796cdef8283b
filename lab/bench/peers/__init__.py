"""Other prefix caches, measured by `kvlease-bench peers` in turns with kvlease's own hits."""
