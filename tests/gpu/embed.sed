# Makes a C string of a text without quotes and backslashes.
s/.*/"&\\n"/
