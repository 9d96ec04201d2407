"""The Python API that `measure` offers: functions that print nothing, and results as frozen types and DataFrames."""
