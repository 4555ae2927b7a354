//! Outputs too large to return directly.

use bytes::Bytes;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{
    OutputHandle, OutputQuery, OutputStore, OutputSummary, StoreError, StoreUsage, StoredOutput,
};
use pegboard_stores::limits::OutputLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    an_output_is_readable_until_it_expires,
    an_output_round_trips,
    a_full_store_refuses_and_keeps_its_outputs,
    expired_outputs_make_room,
    a_replaced_output_frees_its_space,
    a_refused_replacement_leaves_the_output_unchanged,
    removing_a_session_removes_only_its_outputs,
    outputs_are_listed_newest_first_without_bodies,
    removing_an_output_makes_room,
    an_output_exists_for_its_owner_only,
);

fn handle(name: &str) -> OutputHandle {
    OutputHandle(name.to_owned())
}

/// An owner without a name, which does not count for the size of an output.
fn anyone() -> Owner {
    Owner::from_stored("")
}

/// An output with the accounted size of its body.
fn output(session: &str, n_bytes: usize, expires: u64) -> StoredOutput {
    StoredOutput {
        body: Bytes::from(vec![b'x'; n_bytes]),
        content_type: String::new(),
        tool: String::new(),
        session: session.to_owned(),
        owner: anyone(),
        created: at(0),
        expires: at(expires),
    }
}

/// Returns those of the handles that exist.
async fn present(outputs: &dyn OutputStore, handles: &str, now: u64) -> String {
    let mut present = Vec::new();
    for name in handles.split(' ') {
        if outputs.get(OwnerScope::All, handle(name), at(now)).await.unwrap().is_some() {
            present.push(name);
        }
    }
    present.join(" ")
}

fn reason(result: Result<(), StoreError>) -> String {
    match result {
        Ok(()) => "kept".to_owned(),
        Err(StoreError::Full { reason }) => reason,
        Err(StoreError::Unusable { reason, .. } | StoreError::Failed { reason }) => panic!("{reason}"),
    }
}

async fn an_output_is_readable_until_it_expires(engine: Engine) {
    let outputs = engine.outputs(OutputLimits::default());
    outputs.put(handle("a"), output("s", 1, 10), at(0)).await.unwrap();
    for (now, expected) in [(0, "a"), (9, "a"), (10, ""), (11, "")] {
        assert_eq!(present(&*outputs, "a", now).await, expected, "at {now}");
    }
}

async fn an_output_round_trips(engine: Engine) {
    let outputs = engine.outputs(OutputLimits::default());
    let bodies: [&[u8]; 3] = [b"", b"\x00\xff\xfe", &vec![7; 3_000_000]];
    for body in bodies {
        let kept = StoredOutput {
            body: Bytes::copy_from_slice(body),
            content_type: "text/plain; charset=utf-8".to_owned(),
            tool: "名前\u{0}".to_owned(),
            owner: Owner::new("'; DROP TABLE outputs; --"),
            ..output("s", 0, 10)
        };
        outputs.put(handle("../../etc/passwd"), kept.clone(), at(0)).await.unwrap();
        assert_eq!(
            outputs
                .get(OwnerScope::Only(kept.owner.clone()), handle("../../etc/passwd"), at(0))
                .await
                .unwrap(),
            Some(kept)
        );
    }
    assert_eq!(outputs.usage().await.unwrap().n_entries, 1);
}

async fn a_full_store_refuses_and_keeps_its_outputs(engine: Engine) {
    let outputs = engine.outputs(OutputLimits { max_entries: 4, max_bytes: 100, max_session_bytes: 60 });
    for (name, session, n_bytes, expected) in [
        ("a", "s", 61, "the session uses 0 of 60 bytes for outputs, and this one needs 61"),
        ("a", "s", 60, "kept"),
        ("b", "s", 1, "the session uses 60 of 60 bytes for outputs, and this one needs 1"),
        ("b", "t", 41, "outputs use 60 of 100 bytes, and this one needs 41"),
        ("b", "t", 40, "kept"),
        ("c", "s", 0, "kept"),
        ("d", "u", 0, "kept"),
        ("e", "u", 0, "the limit of 4 outputs is reached"),
    ] {
        let result = outputs.put(handle(name), output(session, n_bytes, 10), at(0)).await;
        assert_eq!(reason(result), expected, "{name} of {session}, {n_bytes} bytes");
    }
    assert_eq!(present(&*outputs, "a b c d e", 0).await, "a b c d");
    assert_eq!(outputs.usage().await.unwrap(), StoreUsage { n_entries: 4, n_bytes: 100 });
}

async fn expired_outputs_make_room(engine: Engine) {
    let outputs = engine.outputs(OutputLimits { max_entries: 2, max_bytes: 100, max_session_bytes: 60 });
    outputs.put(handle("a"), output("s", 60, 5), at(0)).await.unwrap();
    outputs.put(handle("b"), output("t", 40, 9), at(0)).await.unwrap();
    assert!(outputs.put(handle("c"), output("s", 60, 20), at(4)).await.is_err());
    outputs.put(handle("c"), output("s", 60, 20), at(5)).await.unwrap();
    assert_eq!(present(&*outputs, "a b c", 5).await, "b c");
    assert_eq!(outputs.usage().await.unwrap(), StoreUsage { n_entries: 2, n_bytes: 100 });
}

async fn a_replaced_output_frees_its_space(engine: Engine) {
    let outputs = engine.outputs(OutputLimits { max_entries: 1, max_bytes: 70, max_session_bytes: 60 });
    for (session, n_bytes) in [("s", 60), ("s", 50), ("t", 60), ("s", 60)] {
        outputs.put(handle("a"), output(session, n_bytes, 10), at(0)).await.unwrap();
        let expected = StoreUsage { n_entries: 1, n_bytes: u64::try_from(n_bytes).unwrap() };
        assert_eq!(outputs.usage().await.unwrap(), expected);
    }
    outputs.remove_session(anyone(), "t".to_owned()).await.unwrap();
    assert_eq!(present(&*outputs, "a", 0).await, "a", "it belongs to another session now");
}

async fn a_refused_replacement_leaves_the_output_unchanged(engine: Engine) {
    let outputs = engine.outputs(OutputLimits { max_session_bytes: 60, ..OutputLimits::default() });
    outputs.put(handle("a"), output("s", 60, 10), at(0)).await.unwrap();
    assert!(outputs.put(handle("a"), output("s", 61, 10), at(0)).await.is_err());
    assert_eq!(outputs.get(OwnerScope::All, handle("a"), at(0)).await.unwrap(), Some(output("s", 60, 10)));
}

async fn removing_a_session_removes_only_its_outputs(engine: Engine) {
    let outputs = engine.outputs(OutputLimits { max_session_bytes: 60, ..OutputLimits::default() });
    for (name, session, n_bytes) in [("a", "s", 20), ("b", "s", 40), ("c", "t", 10)] {
        outputs.put(handle(name), output(session, n_bytes, 10), at(0)).await.unwrap();
    }
    outputs.remove_session(anyone(), "s".to_owned()).await.unwrap();
    outputs.remove_session(anyone(), "unknown".to_owned()).await.unwrap();
    assert_eq!(present(&*outputs, "a b c", 0).await, "c");
    assert_eq!(outputs.usage().await.unwrap(), StoreUsage { n_entries: 1, n_bytes: 10 });
    outputs.put(handle("d"), output("s", 60, 10), at(0)).await.unwrap();
}

async fn outputs_are_listed_newest_first_without_bodies(engine: Engine) {
    let outputs = engine.outputs(OutputLimits::default());
    for (name, principal, created, expires) in [
        ("a", "ann", 1, 10),
        ("b", "bob", 3, 10),
        ("c", "ann", 2, 10),
        ("d", "ann", 4, 5),
        ("e", "bob", 3, 10),
    ] {
        let kept =
            StoredOutput { owner: Owner::new(principal), created: at(created), ..output("s", 7, expires) };
        outputs.put(handle(name), kept, at(0)).await.unwrap();
    }
    for (principal, limit, now, expected) in [
        (None, 10, 0, "d e b c a"),
        (None, 2, 0, "d e"),
        (Some("ann"), 10, 6, "c a"),
        (Some("eve"), 10, 0, ""),
    ] {
        let scope = principal.map_or(OwnerScope::All, |name| OwnerScope::Only(Owner::new(name)));
        let query = OutputQuery { scope, limit };
        let listed = outputs.list(query, at(now)).await.unwrap();
        let names: Vec<&str> = listed.iter().map(|summary| summary.handle.0.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{principal:?} {limit} at {now}");
    }
    let query = OutputQuery { scope: OwnerScope::All, limit: 1 };
    let expected = OutputSummary {
        handle: handle("d"),
        n_bytes: 7,
        content_type: String::new(),
        tool: String::new(),
        session: "s".to_owned(),
        owner: Owner::new("ann"),
        created: at(4),
        expires: at(5),
    };
    assert_eq!(outputs.list(query, at(0)).await.unwrap(), [expected]);
}

async fn removing_an_output_makes_room(engine: Engine) {
    let outputs = engine.outputs(OutputLimits { max_session_bytes: 60, ..OutputLimits::default() });
    outputs.put(handle("a"), output("s", 60, 10), at(0)).await.unwrap();
    assert!(outputs.remove(OwnerScope::All, handle("a")).await.unwrap());
    assert!(!outputs.remove(OwnerScope::All, handle("a")).await.unwrap());
    assert_eq!(outputs.usage().await.unwrap(), StoreUsage::default());
    outputs.put(handle("b"), output("s", 60, 10), at(0)).await.unwrap();
}

async fn an_output_exists_for_its_owner_only(engine: Engine) {
    let outputs = engine.outputs(OutputLimits::default());
    let [ann, bob] = ["ann", "bob"].map(|name| OwnerScope::Only(Owner::new(name)));
    let kept = StoredOutput { owner: Owner::new("ann"), ..output("s", 7, 10) };
    outputs.put(handle("a"), kept.clone(), at(0)).await.unwrap();
    let get = async |scope: &OwnerScope| outputs.get(scope.clone(), handle("a"), at(0)).await.unwrap();
    assert_eq!([get(&ann).await, get(&bob).await], [Some(kept.clone()), None]);
    assert!(!outputs.remove(bob.clone(), handle("a")).await.unwrap());
    outputs.remove_session(Owner::new("bob"), "s".to_owned()).await.unwrap();
    assert_eq!([get(&OwnerScope::All).await, get(&bob).await], [Some(kept), None]);
    assert!(outputs.remove(ann.clone(), handle("a")).await.unwrap());
    assert_eq!(get(&ann).await, None);
}
