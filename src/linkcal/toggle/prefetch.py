"""A hint to the processor, from compiled code: fetch a row into the cache before it is needed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["prefetch"]


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of ``array.flat[index]`` of a contiguous array; nothing is read or changed.

    Pairs ask for rows in an order that the processor cannot guess, and the work on one pair is too long for
    it to look ahead to the next.
    """
    if not (isinstance(array, types.Array) and array.layout == "C" and isinstance(index, types.Integer)):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        struct = context.make_array(kind)(context, builder, arguments[0])
        place = builder.gep(struct.data, [arguments[1]])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
        )
        # For reading, to all levels of the data cache.
        builder.call(function, [builder.bitcast(place, byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.none(array, index), generate
