"""Models of other programs, made into models of this one."""

from bilm.conversion.many_langs import convert_many_langs

__all__ = ["convert_many_langs"]
