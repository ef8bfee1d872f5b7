; A driver changes wheels with the tools in the boot of the car.
(define (domain tyreworld)
  (:requirements :strips :typing)
  (:types boot hub thing - object
          tool nut wheel - thing
          wrench jack pump - tool)
  (:predicates
    (open ?boot - boot)
    (closed ?boot - boot)
    (in ?thing - thing ?boot - boot)
    (have ?thing - thing)
    (tight ?nut - nut ?hub - hub)
    (loose ?nut - nut ?hub - hub)
    (fastened ?hub - hub)
    (unfastened ?hub - hub)
    (grounded ?hub - hub)
    (raised ?hub - hub)
    (under ?jack - jack ?hub - hub)
    (on ?wheel - wheel ?hub - hub)
    (bare ?hub - hub)
    (intact ?wheel - wheel)
    (flat ?wheel - wheel)
    (inflated ?wheel - wheel))
  (:action open
    :parameters (?boot - boot)
    :precondition (and (closed ?boot))
    :effect (and (open ?boot) (not (closed ?boot))))
  (:action close
    :parameters (?boot - boot)
    :precondition (and (open ?boot))
    :effect (and (closed ?boot) (not (open ?boot))))
  (:action fetch
    :parameters (?thing - thing ?boot - boot)
    :precondition (and (open ?boot) (in ?thing ?boot))
    :effect (and (have ?thing) (not (in ?thing ?boot))))
  (:action stow
    :parameters (?thing - thing ?boot - boot)
    :precondition (and (open ?boot) (have ?thing))
    :effect (and (in ?thing ?boot) (not (have ?thing))))
  (:action loosen
    :parameters (?nut - nut ?hub - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (tight ?nut ?hub) (grounded ?hub))
    :effect (and (loose ?nut ?hub) (not (tight ?nut ?hub))))
  (:action tighten
    :parameters (?nut - nut ?hub - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (loose ?nut ?hub) (grounded ?hub))
    :effect (and (tight ?nut ?hub) (not (loose ?nut ?hub))))
  (:action raise
    :parameters (?hub - hub ?jack - jack)
    :precondition (and (have ?jack) (grounded ?hub))
    :effect (and (raised ?hub) (under ?jack ?hub) (not (grounded ?hub)) (not (have ?jack))))
  (:action lower
    :parameters (?hub - hub ?jack - jack)
    :precondition (and (raised ?hub) (under ?jack ?hub))
    :effect (and (grounded ?hub) (have ?jack) (not (raised ?hub)) (not (under ?jack ?hub))))
  (:action unscrew
    :parameters (?nut - nut ?hub - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (raised ?hub) (loose ?nut ?hub) (fastened ?hub))
    :effect (and (have ?nut) (unfastened ?hub) (not (loose ?nut ?hub)) (not (fastened ?hub))))
  (:action screw
    :parameters (?nut - nut ?hub - hub ?wrench - wrench)
    :precondition (and (have ?wrench) (have ?nut) (raised ?hub) (unfastened ?hub))
    :effect (and (loose ?nut ?hub) (fastened ?hub) (not (have ?nut)) (not (unfastened ?hub))))
  (:action remove
    :parameters (?wheel - wheel ?hub - hub)
    :precondition (and (on ?wheel ?hub) (raised ?hub) (unfastened ?hub))
    :effect (and (have ?wheel) (bare ?hub) (not (on ?wheel ?hub))))
  (:action mount
    :parameters (?wheel - wheel ?hub - hub)
    :precondition (and (have ?wheel) (bare ?hub) (raised ?hub) (unfastened ?hub))
    :effect (and (on ?wheel ?hub) (not (have ?wheel)) (not (bare ?hub))))
  (:action inflate
    :parameters (?wheel - wheel ?pump - pump)
    :precondition (and (have ?pump) (intact ?wheel) (flat ?wheel))
    :effect (and (inflated ?wheel) (not (flat ?wheel)))))
