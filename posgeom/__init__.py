"""The geometry of positional encodings: the mathematics under the book.

Text flows ``corpora -> tokens -> positions -> distances -> mds -> comparison``; each name is a module that
holds one concept. Importing the package needs numpy, scipy and matplotlib at most, and loads none of them
until a module that needs one is imported.

Reference: G. Cirrincione, *On the Geometry of Positional Encodings in Transformers*, arXiv 2604.05217.
"""

__version__ = "0.1.0"
