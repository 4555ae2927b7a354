//! Slot leases shared by several processes.

use pegboard_core::store::{LeaseId, SlotStore, StoreError};
use pegboard_stores::limits::SlotLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    a_queue_leases_up_to_its_capacity,
    a_lease_expires_without_renewal,
    a_renewed_lease_lasts_longer,
    releasing_twice_frees_one_slot,
    a_shrunk_queue_leases_again_after_enough_releases,
    leases_are_limited_over_all_queues,
);

async fn lease(slots: &dyn SlotStore, capacity: usize, now: u64, expires: u64) -> Option<LeaseId> {
    slots.lease("browser".to_owned(), capacity, at(now), at(expires)).await.unwrap()
}

async fn a_queue_leases_up_to_its_capacity(engine: Engine) {
    let slots = engine.slots(SlotLimits::default());
    for (queue, capacity, expected) in [
        ("none", 0, false),
        ("one", 1, true),
        ("one", 1, false),
        ("two", 2, true),
        ("two", 2, true),
        ("two", 2, false),
        ("one", usize::MAX, true),
        ("", 1, true),
        ("", 1, false),
    ] {
        let leased = slots.lease(queue.to_owned(), capacity, at(0), at(10)).await.unwrap();
        assert_eq!(leased.is_some(), expected, "'{queue}' of {capacity}");
    }
}

async fn a_lease_expires_without_renewal(engine: Engine) {
    let slots = engine.slots(SlotLimits::default());
    let first = lease(&*slots, 1, 0, 10).await.unwrap();
    assert_eq!(lease(&*slots, 1, 9, 20).await, None);
    let second = lease(&*slots, 1, 10, 20).await.unwrap();
    assert_ne!(first, second);
    slots.release(first).await.unwrap();
    assert_eq!(lease(&*slots, 1, 10, 20).await, None, "an expired lease cannot release another's slot");
}

async fn a_renewed_lease_lasts_longer(engine: Engine) {
    let slots = engine.slots(SlotLimits::default());
    let held = lease(&*slots, 1, 0, 10).await.unwrap();
    for (now, expires, expected) in [(9, 20, true), (19, 30, true), (30, 40, false), (31, 41, false)] {
        assert_eq!(slots.renew(held.clone(), at(now), at(expires)).await.unwrap(), expected, "at {now}");
    }
    assert!(!slots.renew(LeaseId("unknown".to_owned()), at(0), at(10)).await.unwrap());
    let held = lease(&*slots, 1, 30, 40).await.unwrap();
    assert!(slots.renew(held, at(30), at(50)).await.unwrap());
    assert_eq!(lease(&*slots, 1, 49, 60).await, None);
    assert!(lease(&*slots, 1, 50, 60).await.is_some());
}

async fn releasing_twice_frees_one_slot(engine: Engine) {
    let slots = engine.slots(SlotLimits::default());
    let held = lease(&*slots, 2, 0, 10).await.unwrap();
    lease(&*slots, 2, 0, 10).await.unwrap();
    slots.release(held.clone()).await.unwrap();
    slots.release(held.clone()).await.unwrap();
    assert!(!slots.renew(held, at(0), at(10)).await.unwrap());
    assert!(lease(&*slots, 2, 0, 10).await.is_some());
    assert_eq!(lease(&*slots, 2, 0, 10).await, None);
}

async fn a_shrunk_queue_leases_again_after_enough_releases(engine: Engine) {
    let slots = engine.slots(SlotLimits::default());
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(lease(&*slots, 3, 0, 10).await.unwrap());
    }
    for expected in [false, false, true] {
        slots.release(held.pop().unwrap()).await.unwrap();
        assert_eq!(lease(&*slots, 1, 0, 10).await.is_some(), expected);
    }
}

async fn leases_are_limited_over_all_queues(engine: Engine) {
    let slots = engine.slots(SlotLimits { max_leases: 2 });
    for queue in ["a", "b"] {
        assert!(slots.lease(queue.to_owned(), 5, at(0), at(10)).await.unwrap().is_some());
    }
    let refused = slots.lease("c".to_owned(), 5, at(0), at(10)).await;
    assert_eq!(
        refused,
        Err(StoreError::Full { reason: "the limit of 2 leased slots is reached".to_owned() })
    );
    assert!(slots.lease("c".to_owned(), 5, at(10), at(20)).await.unwrap().is_some());
}
