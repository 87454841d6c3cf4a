"""How the objects of each library are taken apart and made again; see `holdfast.codec.reduced`."""

__all__: list[str] = []
