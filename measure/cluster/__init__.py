"""Makes the runs of a campaign on the workers of a Dask cluster; optional: `pip install '.[dask]'` in a checkout."""
