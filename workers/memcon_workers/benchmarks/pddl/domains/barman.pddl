; A robot with two hands mixes cocktails of two ingredients in a shaker of two measures and serves them in shots.
(define (domain barman)
  (:requirements :strips :typing)
  (:types hand measure drink vessel - object
          ingredient cocktail - drink
          shot shaker - vessel)
  (:predicates
    (free ?hand - hand)
    (holding ?hand - hand ?vessel - vessel)
    (on-table ?vessel - vessel)
    (contains ?vessel - vessel ?drink - drink)
    (empty ?vessel - vessel)
    (clean ?vessel - vessel)
    (soiled ?shaker - shaker)
    (used ?shot - shot ?drink - drink)
    (shaken ?shaker - shaker)
    (unshaken ?shaker - shaker)
    (filled-to ?shaker - shaker ?measure - measure)
    (next ?lower ?higher - measure)
    (bottom ?measure - measure)
    (recipe ?cocktail - cocktail ?first ?second - ingredient))
  (:action grasp
    :parameters (?vessel - vessel ?hand - hand)
    :precondition (and (on-table ?vessel) (free ?hand))
    :effect (and (holding ?hand ?vessel) (not (on-table ?vessel)) (not (free ?hand))))
  (:action set-down
    :parameters (?vessel - vessel ?hand - hand)
    :precondition (and (holding ?hand ?vessel))
    :effect (and (on-table ?vessel) (free ?hand) (not (holding ?hand ?vessel))))
  (:action fill
    :parameters (?shot - shot ?ingredient - ingredient ?hand ?other - hand)
    :precondition (and (holding ?hand ?shot) (free ?other) (empty ?shot) (clean ?shot))
    :effect (and (contains ?shot ?ingredient) (used ?shot ?ingredient) (not (empty ?shot)) (not (clean ?shot))))
  (:action refill
    :parameters (?shot - shot ?ingredient - ingredient ?hand ?other - hand)
    :precondition (and (holding ?hand ?shot) (free ?other) (empty ?shot) (used ?shot ?ingredient))
    :effect (and (contains ?shot ?ingredient) (not (empty ?shot))))
  (:action empty-shot
    :parameters (?shot - shot ?drink - drink ?hand - hand)
    :precondition (and (holding ?hand ?shot) (contains ?shot ?drink))
    :effect (and (empty ?shot) (not (contains ?shot ?drink))))
  (:action rinse-shot
    :parameters (?shot - shot ?drink - drink ?hand ?other - hand)
    :precondition (and (holding ?hand ?shot) (free ?other) (empty ?shot) (used ?shot ?drink))
    :effect (and (clean ?shot) (not (used ?shot ?drink))))
  (:action pour-first
    :parameters (?shot - shot ?ingredient - ingredient ?shaker - shaker ?hand - hand ?lower ?higher - measure)
    :precondition (and (holding ?hand ?shot) (contains ?shot ?ingredient) (empty ?shaker) (clean ?shaker)
                       (filled-to ?shaker ?lower) (next ?lower ?higher))
    :effect (and (contains ?shaker ?ingredient) (empty ?shot) (unshaken ?shaker) (soiled ?shaker)
                 (filled-to ?shaker ?higher) (not (contains ?shot ?ingredient)) (not (empty ?shaker)) (not (clean ?shaker))
                 (not (filled-to ?shaker ?lower))))
  (:action pour-more
    :parameters (?shot - shot ?ingredient - ingredient ?shaker - shaker ?hand - hand ?lower ?higher - measure)
    :precondition (and (holding ?hand ?shot) (contains ?shot ?ingredient) (unshaken ?shaker)
                       (filled-to ?shaker ?lower) (next ?lower ?higher))
    :effect (and (contains ?shaker ?ingredient) (empty ?shot) (filled-to ?shaker ?higher)
                 (not (contains ?shot ?ingredient)) (not (filled-to ?shaker ?lower))))
  (:action shake
    :parameters (?cocktail - cocktail ?first ?second - ingredient ?shaker - shaker ?hand ?other - hand)
    :precondition (and (recipe ?cocktail ?first ?second) (holding ?hand ?shaker) (free ?other) (unshaken ?shaker)
                       (contains ?shaker ?first) (contains ?shaker ?second))
    :effect (and (contains ?shaker ?cocktail) (shaken ?shaker) (not (unshaken ?shaker))
                 (not (contains ?shaker ?first)) (not (contains ?shaker ?second))))
  (:action serve
    :parameters (?cocktail - cocktail ?shaker - shaker ?shot - shot ?hand - hand ?lower ?higher - measure)
    :precondition (and (holding ?hand ?shaker) (shaken ?shaker) (contains ?shaker ?cocktail) (empty ?shot) (clean ?shot)
                       (filled-to ?shaker ?higher) (next ?lower ?higher))
    :effect (and (contains ?shot ?cocktail) (used ?shot ?cocktail) (filled-to ?shaker ?lower)
                 (not (empty ?shot)) (not (clean ?shot)) (not (filled-to ?shaker ?higher))))
  (:action drain
    :parameters (?shaker - shaker ?cocktail - cocktail ?hand - hand ?now ?none - measure)
    :precondition (and (holding ?hand ?shaker) (shaken ?shaker) (contains ?shaker ?cocktail) (filled-to ?shaker ?now)
                       (bottom ?none))
    :effect (and (empty ?shaker) (filled-to ?shaker ?none) (not (shaken ?shaker)) (not (contains ?shaker ?cocktail))
                 (not (filled-to ?shaker ?now))))
  (:action rinse-shaker
    :parameters (?shaker - shaker ?hand ?other - hand)
    :precondition (and (holding ?hand ?shaker) (free ?other) (empty ?shaker) (soiled ?shaker))
    :effect (and (clean ?shaker) (not (soiled ?shaker)))))
