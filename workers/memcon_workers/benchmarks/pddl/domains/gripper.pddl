; A robot with two arms carries balls between rooms.
(define (domain gripper)
  (:requirements :strips :typing)
  (:types room ball arm)
  (:predicates
    (robot-at ?room - room)
    (at ?ball - ball ?room - room)
    (free ?arm - arm)
    (carries ?arm - arm ?ball - ball))
  (:action move
    :parameters (?from ?to - room)
    :precondition (and (robot-at ?from))
    :effect (and (robot-at ?to) (not (robot-at ?from))))
  (:action grab
    :parameters (?ball - ball ?room - room ?arm - arm)
    :precondition (and (robot-at ?room) (at ?ball ?room) (free ?arm))
    :effect (and (carries ?arm ?ball) (not (at ?ball ?room)) (not (free ?arm))))
  (:action drop
    :parameters (?ball - ball ?room - room ?arm - arm)
    :precondition (and (robot-at ?room) (carries ?arm ?ball))
    :effect (and (at ?ball ?room) (free ?arm) (not (carries ?arm ?ball)))))
