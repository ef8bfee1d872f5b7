"""Rooms, receptacles and items: which furniture a room has, what fits where, what can be done to what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ENCLOSED", "ITEMS", "LAMP", "LAMP_STANDS", "ROOMS", "TOOLS", "ItemKind", "kind_of"]

# Room -> receptacle kind -> how many there may be.
ROOMS: Mapping[str, Mapping[str, int]] = {
    "kitchen": {
        "cabinet": 4,
        "coffeemachine": 1,
        "countertop": 2,
        "diningtable": 1,
        "drawer": 3,
        "fridge": 1,
        "garbagecan": 1,
        "microwave": 1,
        "shelf": 2,
        "sinkbasin": 1,
        "stoveburner": 2,
    },
    "bathroom": {
        "bathtub": 1,
        "cabinet": 3,
        "countertop": 1,
        "drawer": 3,
        "garbagecan": 1,
        "shelf": 2,
        "sinkbasin": 2,
        "toilet": 1,
    },
    "bedroom": {"bed": 1, "desk": 2, "drawer": 4, "dresser": 1, "garbagecan": 1, "safe": 1, "shelf": 3, "sidetable": 2},
    "livingroom": {
        "armchair": 2,
        "cabinet": 2,
        "coffeetable": 1,
        "drawer": 3,
        "shelf": 2,
        "sidetable": 2,
        "sofa": 1,
        "tvstand": 1,
    },
}
# Receptacles with a door; what is in them is seen only when they are open.
ENCLOSED = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
# The receptacle that a goal type works with.
TOOLS: Mapping[str, str] = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
LAMP = "desklamp"
LAMP_STANDS = frozenset({"coffeetable", "desk", "dresser", "sidetable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemKind:
    """What can be done to items of one kind."""

    # Rooms where it is found, and receptacle kinds that hold it.
    rooms: frozenset[str]
    fits: frozenset[str]
    # Out of {"clean", "heat", "cool"}.
    changes: frozenset[str] = frozenset()


def kind_of(name: str) -> str:
    """The word of a name such as "mug 1"."""
    return name.partition(" ")[0]


_FLAT = frozenset({"coffeetable", "countertop", "desk", "diningtable", "dresser", "shelf", "sidetable", "tvstand"})
_SMALL = _FLAT | {"drawer", "garbagecan"}
_SOFT = frozenset({"armchair", "bed", "sofa"})
_FOOD = frozenset({"countertop", "diningtable", "fridge", "garbagecan", "microwave", "sinkbasin"})
_DISH = frozenset({"cabinet", "coffeetable", "countertop", "diningtable", "shelf", "sinkbasin"})
_ALL = frozenset({"clean", "heat", "cool"})
_WASH = frozenset({"clean"})
_WASH_COOL = frozenset({"clean", "cool"})


def _items(names: str, rooms: str, fits: frozenset[str], changes: frozenset[str] = frozenset()) -> dict[str, ItemKind]:
    return {name: ItemKind(rooms=frozenset(rooms.split()), fits=fits, changes=changes) for name in names.split()}


_BATH = frozenset({"bathtub", "cabinet", "countertop", "drawer", "garbagecan", "sinkbasin", "toilet"})
_REST = "bedroom livingroom"

ITEMS: Mapping[str, ItemKind] = {
    **_items("apple egg potato tomato", "kitchen", _FOOD, _ALL),
    **_items("bread", "kitchen", _FOOD, frozenset({"heat", "cool"})),
    **_items("lettuce", "kitchen", _FOOD - {"microwave"}, _WASH_COOL),
    **_items(
        "cup mug",
        "kitchen bedroom livingroom",
        _DISH | {"coffeemachine", "desk", "fridge", "microwave", "sidetable"},
        _ALL,
    ),
    **_items("plate bowl", "kitchen livingroom", _DISH | {"fridge", "microwave", "sidetable"}, _ALL),
    **_items("pan pot", "kitchen", _DISH | {"fridge", "stoveburner"}, _WASH_COOL),
    **_items("fork knife ladle spatula spoon", "kitchen", _DISH - {"cabinet", "shelf"} | {"drawer"}, _WASH),
    **_items("kettle", "kitchen", _DISH | {"stoveburner"}, _WASH),
    **_items("peppershaker saltshaker", "kitchen", _DISH - {"sinkbasin"} | {"drawer"}),
    **_items("soapbottle", "kitchen bathroom", _BATH - {"bathtub"} | {"shelf"}),
    **_items("spraybottle toiletpaper", "bathroom", _BATH - {"bathtub", "sinkbasin"} | {"shelf"}),
    **_items("cloth soapbar", "bathroom", _BATH, _WASH),
    **_items("candle", "bathroom livingroom", _FLAT | {"bathtub", "cabinet", "drawer", "toilet"}),
    **_items("book", _REST, _FLAT | _SOFT | {"drawer"}),
    **_items("newspaper", "bathroom livingroom", _SMALL | {"armchair", "sofa", "toilet"}),
    **_items("laptop pillow", _REST, _SOFT | {"desk", "dresser"}),
    **_items("cellphone keychain", _REST, _SMALL | _SOFT | {"safe"}),
    **_items("creditcard watch", _REST, _SMALL | {"armchair", "safe", "sofa"}),
    **_items("cd pen pencil", "bedroom", _SMALL | {"bed"}),
    **_items("remotecontrol", "livingroom", _SMALL | {"armchair", "sofa"}),
    **_items("box", _REST, _FLAT | _SOFT | {"cabinet"}),
    **_items("statue vase", _REST, _FLAT | {"cabinet", "safe"}),
}
