; One arm rearranges towers of blocks on a table.
(define (domain blocksworld)
  (:requirements :strips :typing)
  (:types block)
  (:predicates
    (on ?upper ?lower - block)
    (on-table ?block - block)
    (clear ?block - block)
    (holding ?block - block)
    (arm-empty))
  (:action pick-up
    :parameters (?block - block)
    :precondition (and (arm-empty) (clear ?block) (on-table ?block))
    :effect (and (holding ?block) (not (arm-empty)) (not (clear ?block)) (not (on-table ?block))))
  (:action put-down
    :parameters (?block - block)
    :precondition (and (holding ?block))
    :effect (and (arm-empty) (clear ?block) (on-table ?block) (not (holding ?block))))
  (:action stack
    :parameters (?upper ?lower - block)
    :precondition (and (holding ?upper) (clear ?lower))
    :effect (and (arm-empty) (clear ?upper) (on ?upper ?lower) (not (holding ?upper)) (not (clear ?lower))))
  (:action unstack
    :parameters (?upper ?lower - block)
    :precondition (and (arm-empty) (clear ?upper) (on ?upper ?lower))
    :effect (and (holding ?upper) (clear ?lower) (not (arm-empty)) (not (clear ?upper)) (not (on ?upper ?lower)))))
