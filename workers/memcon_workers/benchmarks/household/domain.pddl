; A robot with one hand in a furnished room. What it can see is decided by the text layer, not here.
; Complements (not-hot, dirty, ...) are stated, so that each applicable action has an effect.
(define (domain household)
  (:requirements :strips :typing)
  (:types place item lamp - object
          receptacle - place
          sinkbasin microwave fridge - receptacle)
  (:constants middle - place)
  (:predicates
    (robot-at ?place - place)
    (open ?receptacle - receptacle)
    (closed ?receptacle - receptacle)
    (in ?item - item ?receptacle - receptacle)
    (stands-at ?lamp - lamp ?receptacle - receptacle)
    (fits ?item - item ?receptacle - receptacle)
    (hand-empty)
    (holding ?item - item)
    (cleanable ?item - item)
    (heatable ?item - item)
    (coolable ?item - item)
    (clean ?item - item)
    (dirty ?item - item)
    (hot ?item - item)
    (not-hot ?item - item)
    (cool ?item - item)
    (not-cool ?item - item)
    (openable ?receptacle - receptacle)
    (lit ?lamp - lamp)
    (unlit ?lamp - lamp))
  (:action go
    :parameters (?to - receptacle ?from - place)
    :precondition (and (robot-at ?from))
    :effect (and (robot-at ?to) (not (robot-at ?from))))
  (:action open
    :parameters (?receptacle - receptacle)
    :precondition (and (robot-at ?receptacle) (openable ?receptacle) (closed ?receptacle))
    :effect (and (open ?receptacle) (not (closed ?receptacle))))
  (:action close
    :parameters (?receptacle - receptacle)
    :precondition (and (robot-at ?receptacle) (openable ?receptacle) (open ?receptacle))
    :effect (and (closed ?receptacle) (not (open ?receptacle))))
  (:action take
    :parameters (?item - item ?receptacle - receptacle)
    :precondition (and (robot-at ?receptacle) (open ?receptacle) (in ?item ?receptacle) (hand-empty))
    :effect (and (holding ?item) (not (in ?item ?receptacle)) (not (hand-empty))))
  (:action move
    :parameters (?item - item ?receptacle - receptacle)
    :precondition (and (robot-at ?receptacle) (open ?receptacle) (holding ?item) (fits ?item ?receptacle))
    :effect (and (in ?item ?receptacle) (hand-empty) (not (holding ?item))))
  (:action clean
    :parameters (?item - item ?sinkbasin - sinkbasin)
    :precondition (and (robot-at ?sinkbasin) (holding ?item) (cleanable ?item) (dirty ?item))
    :effect (and (clean ?item) (not (dirty ?item))))
  (:action heat
    :parameters (?item - item ?microwave - microwave)
    :precondition (and (robot-at ?microwave) (holding ?item) (heatable ?item) (not-hot ?item))
    :effect (and (hot ?item) (not-cool ?item) (not (not-hot ?item)) (not (cool ?item))))
  (:action cool
    :parameters (?item - item ?fridge - fridge)
    :precondition (and (robot-at ?fridge) (holding ?item) (coolable ?item) (not-cool ?item))
    :effect (and (cool ?item) (not-hot ?item) (not (not-cool ?item)) (not (hot ?item))))
  (:action switch-on
    :parameters (?lamp - lamp ?receptacle - receptacle)
    :precondition (and (robot-at ?receptacle) (stands-at ?lamp ?receptacle) (unlit ?lamp))
    :effect (and (lit ?lamp) (not (unlit ?lamp))))
  (:action switch-off
    :parameters (?lamp - lamp ?receptacle - receptacle)
    :precondition (and (robot-at ?receptacle) (stands-at ?lamp ?receptacle) (lit ?lamp))
    :effect (and (unlit ?lamp) (not (lit ?lamp)))))
