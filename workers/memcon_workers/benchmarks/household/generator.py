"""Draws rooms: the goal's things first, then furniture up to the cap, then other items as distractors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from memcon.seeds import Generator
from memcon_workers.benchmarks.household.room import SCHEMA_VERSION, Room
from memcon_workers.benchmarks.household.things import ENCLOSED, ITEMS, LAMP, LAMP_STANDS, ROOMS, TOOLS, kind_of

__all__ = ["draw_room"]

# Rooms in which a goal type can be met.
ROOMS_FOR = {
    "put": ("kitchen", "bathroom", "bedroom", "livingroom"),
    "examine": ("bedroom", "livingroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "puttwo": ("kitchen", "bathroom", "bedroom", "livingroom"),
}
# (fewest, most) instances of the item of a two-object goal, other goals have one; and kinds that distract.
TARGETS_FOR_TWO = (2, 3)
DISTRACTING_KINDS = (4, 7)
# Share of the goal's items that may also lie behind a door; the others lie in the open where the furniture allows it.
HIDDEN_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aim:
    """What a task wants: item kind, receptacle kind (lamp kind for `examine`), and kinds of furniture that it needs."""

    item: str
    place: str
    # A kind where the item may lie at the start, other than the goal's.
    sources: tuple[str, ...]
    furniture: tuple[str, ...]


def draw_room(goal_type: str, generator: Generator, max_receptacles: int) -> Room:
    """A room of at most `max_receptacles` receptacles (or the few that the goal needs) whose goal is not met yet."""
    room = generator.choice(ROOMS_FOR[goal_type])
    aim = _draw_aim(goal_type, room, generator)
    receptacles = _draw_furniture(room, aim, generator, max_receptacles)
    contents: dict[str, list[str]] = {name: [] for name in receptacles}
    count = generator.randint(*TARGETS_FOR_TWO) if goal_type == "puttwo" else 1
    for number in range(1, count + 1):
        contents[_draw_source(receptacles, aim, generator)].append(f"{aim.item} {number}")
    if goal_type == "examine":
        stands = [name for name in receptacles if kind_of(name) in LAMP_STANDS]
        contents[generator.choice([name for name in stands if not contents[name]] or stands)].append(f"{LAMP} 1")
    _add_distractors(contents, aim, room, generator)
    return Room(
        schema_version=SCHEMA_VERSION,
        goal_type=goal_type,
        room=room,
        goal_item=aim.item,
        goal_place=aim.place,
        contents={name: tuple(sorted(things)) for name, things in contents.items()},
    )


def _draw_aim(goal_type: str, room: str, generator: Generator) -> _Aim:
    kinds = sorted(
        kind
        for kind, item in ITEMS.items()
        if room in item.rooms and (goal_type not in TOOLS or goal_type in item.changes)
    )
    options: defaultdict[str, list[_Aim]] = defaultdict(list)
    for item in kinds:
        homes = sorted(ITEMS[item].fits & set(ROOMS[room]))
        if goal_type == "examine":
            stand = generator.choice(sorted(LAMP_STANDS & set(ROOMS[room])))
            places = [(LAMP, stand)]
        else:
            # Left in the tool a changed item would make its goal two actions long.
            places = [(home, home) for home in homes if home != TOOLS.get(goal_type)]
        for place, needed in places:
            sources = tuple(home for home in homes if home != place)
            if sources:
                lying = [home for home in sources if home not in ENCLOSED] or sources
                furniture = (needed, generator.choice(lying), *([TOOLS[goal_type]] if goal_type in TOOLS else []))
                options[item].append(_Aim(item=item, place=place, sources=sources, furniture=furniture))
    return generator.choice(options[generator.choice(sorted(options))])


def _draw_source(receptacles: Sequence[str], aim: _Aim, generator: Generator) -> str:
    sources = [name for name in receptacles if kind_of(name) in aim.sources]
    in_sight = [name for name in sources if kind_of(name) not in ENCLOSED]
    return generator.choice(in_sight if in_sight and generator.random() >= HIDDEN_SHARE else sources)


def _draw_furniture(room: str, aim: _Aim, generator: Generator, cap: int) -> list[str]:
    """Receptacle names: what `aim` needs, then others of the room up to `cap`, sorted."""
    left = dict(ROOMS[room])
    chosen: defaultdict[str, int] = defaultdict(int)
    for kind in dict.fromkeys(aim.furniture):
        chosen[kind] += 1
        left[kind] -= 1
    spare = [kind for kind, count in left.items() for _ in range(count)]
    free = max(cap - sum(chosen.values()), 0)
    for kind in generator.sample(spare, min(free, len(spare))):
        chosen[kind] += 1
    return [f"{kind} {number}" for kind in sorted(chosen) for number in range(1, chosen[kind] + 1)]


def _add_distractors(contents: dict[str, list[str]], aim: _Aim, room: str, generator: Generator) -> None:
    def homes(kind: str) -> Sequence[str]:
        return [name for name in contents if kind_of(name) in ITEMS[kind].fits]

    local = [kind for kind in sorted(ITEMS) if kind != aim.item and room in ITEMS[kind].rooms and homes(kind)]
    wanted = generator.randint(*DISTRACTING_KINDS)
    for kind in generator.sample(local, min(wanted, len(local))):
        for number in range(1, generator.randint(1, 2) + 1):
            contents[generator.choice(homes(kind))].append(f"{kind} {number}")
