//! Resumable sessions.

use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError};
use pegboard_stores::limits::SessionLimits;

use crate::behaviour::engine::{Engine, at, on_every_engine};

on_every_engine!(
    a_session_is_readable_until_it_expires,
    a_session_round_trips,
    an_id_can_be_created_once_until_it_expires,
    put_replaces_a_session_and_keeps_its_handles,
    the_first_to_bind_a_handle_wins,
    handles_differ_by_workspace_and_owner,
    equal_ids_of_two_owners_are_two_sessions,
    a_handle_of_a_removed_session_can_be_rebound,
    a_handle_cannot_be_bound_to_an_unknown_session,
    handles_per_session_are_limited,
    sessions_are_listed_by_last_use,
    expired_sessions_are_evicted_before_the_least_recently_used,
    remove_reports_if_the_session_existed,
);

fn ada() -> Owner {
    Owner::new("ada")
}

fn session(id: &str, used: u64, expires: u64) -> SessionRecord {
    SessionRecord {
        id: id.to_owned(),
        name: format!("Session {id}"),
        owner: ada(),
        workspace: None,
        created: at(0),
        used: at(used),
        expires: at(expires),
    }
}

fn handle(name: &str) -> SessionHandle {
    SessionHandle { owner: ada(), workspace: "default".to_owned(), name: name.to_owned() }
}

async fn bind(sessions: &dyn SessionStore, name: &str, id: &str, now: u64) -> String {
    sessions.bind(handle(name), id.to_owned(), at(now)).await.unwrap()
}

/// Returns the id of the session that a handle is bound to, or `-`.
async fn find(sessions: &dyn SessionStore, name: &str, now: u64) -> String {
    sessions.find(handle(name), at(now)).await.unwrap().map_or("-".to_owned(), |found| found.id)
}

async fn list(sessions: &dyn SessionStore, limit: usize, now: u64) -> String {
    let listed = sessions.list(OwnerScope::All, limit, at(now)).await.unwrap();
    listed.into_iter().map(|session| session.id).collect::<Vec<_>>().join(" ")
}

async fn a_session_is_readable_until_it_expires(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    sessions.put(session("a", 0, 10), at(0)).await.unwrap();
    bind(&*sessions, "it", "a", 0).await;
    for (now, expected) in [(0, "a"), (9, "a"), (10, ""), (11, "")] {
        let found = sessions.get(ada(), "a".to_owned(), at(now)).await.unwrap();
        assert_eq!(found.map(|found| found.id).unwrap_or_default(), expected, "at {now}");
        assert_eq!(find(&*sessions, "it", now).await.trim_matches('-'), expected, "at {now}");
        assert_eq!(list(&*sessions, 10, now).await, expected, "at {now}");
    }
}

async fn a_session_round_trips(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    for (id, workspace) in [("", None), ("'; --", Some("")), ("名\u{0}前", Some("\u{202e}notes"))] {
        let kept = SessionRecord {
            workspace: workspace.map(str::to_owned),
            owner: Owner::new(id),
            ..session(id, 3, 9)
        };
        sessions.put(kept.clone(), at(3)).await.unwrap();
        assert_eq!(sessions.get(Owner::new(id), id.to_owned(), at(3)).await.unwrap(), Some(kept));
    }
}

async fn an_id_can_be_created_once_until_it_expires(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    for (used, now, expected) in [(1, 0, true), (2, 0, false), (3, 9, false), (4, 10, true)] {
        assert_eq!(
            sessions.create(session("a", used, now + 10), at(now)).await.unwrap(),
            expected,
            "at {now}"
        );
    }
    assert_eq!(sessions.get(ada(), "a".to_owned(), at(10)).await.unwrap(), Some(session("a", 4, 20)));
    sessions.put(session("a", 5, 30), at(11)).await.unwrap();
    assert_eq!(sessions.get(ada(), "a".to_owned(), at(11)).await.unwrap(), Some(session("a", 5, 30)));
}

async fn put_replaces_a_session_and_keeps_its_handles(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    sessions.put(session("a", 0, 10), at(0)).await.unwrap();
    bind(&*sessions, "it", "a", 0).await;
    sessions.put(session("a", 5, 20), at(5)).await.unwrap();
    assert_eq!(sessions.find(handle("it"), at(15)).await.unwrap(), Some(session("a", 5, 20)));
    // A session that is put after its expiry is a new one.
    sessions.put(session("a", 20, 30), at(20)).await.unwrap();
    assert_eq!(find(&*sessions, "it", 20).await, "-");
}

async fn the_first_to_bind_a_handle_wins(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    sessions.put(session("a", 0, 10), at(0)).await.unwrap();
    sessions.put(session("b", 0, 10), at(0)).await.unwrap();
    for (name, id, expected) in [("it", "a", "a"), ("it", "b", "a"), ("it", "a", "a"), ("other", "a", "a")] {
        assert_eq!(bind(&*sessions, name, id, 1).await, expected, "{name} to {id}");
    }
    assert_eq!(bind(&*sessions, "it", "unknown", 1).await, "a", "a bound handle needs no new session");
    assert_eq!(find(&*sessions, "it", 1).await, "a");
}

async fn handles_differ_by_workspace_and_owner(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    let handle = |principal: &str, workspace: &str, name: &str| SessionHandle {
        owner: Owner::new(principal),
        workspace: workspace.to_owned(),
        name: name.to_owned(),
    };
    let handles = [
        ("a", handle("ada", "default", "it")),
        ("b", handle("bob", "default", "it")),
        ("c", handle("ada", "notes", "it")),
        ("d", handle("adadefault", "", "it")),
        ("e", handle("", "adadefault", "it")),
    ];
    let session = |id: &str, handle: &SessionHandle| SessionRecord {
        owner: handle.owner.clone(),
        ..session(id, 0, 10)
    };
    for (id, handle) in &handles {
        sessions.put(session(id, handle), at(0)).await.unwrap();
        assert_eq!(sessions.bind(handle.clone(), (*id).to_owned(), at(0)).await.unwrap(), *id);
    }
    for (id, handle) in handles {
        assert_eq!(sessions.find(handle.clone(), at(0)).await.unwrap(), Some(session(id, &handle)));
    }
}

async fn equal_ids_of_two_owners_are_two_sessions(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    let owners = [ada(), Owner::new("bob"), Owner::in_tenant("acme", "ada")];
    let of = |owner: &Owner, workspace: &str| SessionRecord {
        owner: owner.clone(),
        workspace: Some(workspace.to_owned()),
        ..session("a", 0, 10)
    };
    for owner in &owners {
        assert!(sessions.create(of(owner, "first"), at(0)).await.unwrap(), "{owner:?}");
        assert!(!sessions.create(of(owner, "first"), at(0)).await.unwrap(), "{owner:?}");
    }
    sessions.put(of(&owners[1], "second"), at(1)).await.unwrap();
    let get = async |owner: &Owner| {
        let found = sessions.get(owner.clone(), "a".to_owned(), at(1)).await.unwrap();
        found.and_then(|found| found.workspace).unwrap_or_default()
    };
    assert_eq!([get(&owners[0]).await, get(&owners[1]).await], ["first", "second"]);
    let of_bob = sessions.list(OwnerScope::Only(owners[1].clone()), 10, at(1)).await.unwrap();
    assert_eq!(of_bob, [of(&owners[1], "second")]);
    // A handle of one owner cannot name the session of another.
    assert_eq!(bind(&*sessions, "it", "a", 1).await, "a");
    assert_eq!(sessions.find(handle("it"), at(1)).await.unwrap(), Some(of(&owners[0], "first")));
    assert!(sessions.remove(owners[0].clone(), "a".to_owned()).await.unwrap());
    assert_eq!([get(&owners[0]).await, get(&owners[1]).await], ["", "second"]);
    assert_eq!(find(&*sessions, "it", 1).await, "-");
}

async fn a_handle_of_a_removed_session_can_be_rebound(engine: Engine) {
    let sessions = engine.sessions(SessionLimits { max_sessions: 2, ..SessionLimits::default() });
    for (id, expires) in [("expiring", 5), ("removed", 100)] {
        sessions.put(session(id, 1, expires), at(0)).await.unwrap();
        bind(&*sessions, id, id, 0).await;
    }
    assert!(sessions.remove(ada(), "removed".to_owned()).await.unwrap());
    sessions.put(session("unused", 0, 100), at(5)).await.unwrap();
    bind(&*sessions, "unused", "unused", 5).await;
    sessions.put(session("a", 6, 100), at(6)).await.unwrap();
    sessions.put(session("b", 7, 100), at(7)).await.unwrap();
    for name in ["expiring", "removed", "unused"] {
        assert_eq!(find(&*sessions, name, 8).await, "-", "{name}");
        assert_eq!(bind(&*sessions, name, "b", 8).await, "b", "{name}");
        assert_eq!(find(&*sessions, name, 8).await, "b", "{name}");
    }
}

async fn a_handle_cannot_be_bound_to_an_unknown_session(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    sessions.put(session("ended", 0, 5), at(0)).await.unwrap();
    for id in ["unknown", "ended"] {
        let reason = "cannot bind the handle: the session does not exist".to_owned();
        let refused = sessions.bind(handle("it"), id.to_owned(), at(5)).await;
        assert_eq!(refused, Err(StoreError::Failed { reason }));
    }
    sessions.put(session("unknown", 5, 10), at(5)).await.unwrap();
    assert_eq!(find(&*sessions, "it", 5).await, "-");
}

async fn handles_per_session_are_limited(engine: Engine) {
    let sessions = engine.sessions(SessionLimits { max_handles: 2, ..SessionLimits::default() });
    sessions.put(session("a", 0, 10), at(0)).await.unwrap();
    sessions.put(session("b", 0, 10), at(0)).await.unwrap();
    bind(&*sessions, "one", "a", 0).await;
    bind(&*sessions, "two", "a", 0).await;
    let reason = "the limit of 2 handles per session is reached".to_owned();
    let refused = sessions.bind(handle("three"), "a".to_owned(), at(0)).await;
    assert_eq!(refused, Err(StoreError::Full { reason }));
    assert_eq!(bind(&*sessions, "two", "a", 0).await, "a");
    assert_eq!(bind(&*sessions, "three", "b", 0).await, "b");
}

async fn sessions_are_listed_by_last_use(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    for (id, used, expires) in [("a", 3, 100), ("b", 1, 100), ("c", 2, 5), ("d", 4, 100), ("e", 3, 100)] {
        sessions.put(session(id, used, expires), at(0)).await.unwrap();
    }
    for (limit, now, expected) in
        [(10, 4, "d e a c b"), (10, 5, "d e a b"), (2, 5, "d e"), (0, 5, ""), (usize::MAX, 5, "d e a b")]
    {
        assert_eq!(list(&*sessions, limit, now).await, expected, "{limit} at {now}");
    }
    sessions.put(session("b", 9, 100), at(9)).await.unwrap();
    assert_eq!(list(&*sessions, 10, 9).await, "b d e a");
}

async fn expired_sessions_are_evicted_before_the_least_recently_used(engine: Engine) {
    let sessions = engine.sessions(SessionLimits { max_sessions: 2, ..SessionLimits::default() });
    for (id, used, expires, now, expected) in [
        ("a", 1, 100, 1, "a"),
        ("b", 2, 5, 2, "b a"),
        ("c", 5, 100, 5, "c a"),
        ("a", 6, 100, 6, "a c"),
        ("d", 7, 100, 7, "d a"),
    ] {
        sessions.put(session(id, used, expires), at(now)).await.unwrap();
        assert_eq!(list(&*sessions, 10, now).await, expected, "after {id}");
    }
    assert!(sessions.create(session("e", 8, 100), at(8)).await.unwrap());
    assert_eq!(list(&*sessions, 10, 8).await, "e d");
}

async fn remove_reports_if_the_session_existed(engine: Engine) {
    let sessions = engine.sessions(SessionLimits::default());
    sessions.put(session("a", 0, 10), at(0)).await.unwrap();
    for expected in [true, false] {
        assert_eq!(sessions.remove(ada(), "a".to_owned()).await.unwrap(), expected);
        assert_eq!(sessions.get(ada(), "a".to_owned(), at(0)).await.unwrap(), None);
    }
}
