//! The session and workspace of a call.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError, StoreFuture};
use pegboard_runtime::sessions::{
    BindOutcome, CallerContext, EnteredSession, SessionError, SessionId, SessionRegistry, SessionSettings,
    WorkspaceSource, runtime_keys,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Behaviour of the store.
#[derive(Clone, Copy, PartialEq)]
enum StoreBehaviour {
    Well,
    Failing,
    FailingToPut,
    Silent,
}

/// An in-memory session store that counts writes and can fail on demand.
struct Store {
    sessions: Mutex<HashMap<(Owner, String), SessionRecord>>,
    handles: Mutex<HashMap<SessionHandle, String>>,
    behaviour: Mutex<StoreBehaviour>,
    n_puts: AtomicUsize,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sessions: Mutex::default(),
            handles: Mutex::default(),
            behaviour: Mutex::new(StoreBehaviour::Well),
            n_puts: AtomicUsize::new(0),
        })
    }

    fn set_behaviour(&self, behaviour: StoreBehaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    fn answer<'s, T: Send + 's>(&self, work: impl FnOnce() -> T + Send + 's) -> StoreFuture<'s, T> {
        let behaviour = *self.behaviour.lock().unwrap();
        match behaviour {
            StoreBehaviour::Well | StoreBehaviour::FailingToPut => async move {
                // Yields, so that other tasks can run in between.
                tokio::task::yield_now().await;
                Ok(work())
            }
            .boxed(),
            StoreBehaviour::Failing => {
                async { Err(StoreError::Failed { reason: "the disk is gone".into() }) }.boxed()
            }
            StoreBehaviour::Silent => std::future::pending().boxed(),
        }
    }

    fn live(&self, owner: &Owner, id: &str, now: SystemTime) -> Option<SessionRecord> {
        let key = (owner.clone(), id.to_owned());
        self.sessions.lock().unwrap().get(&key).filter(|session| session.expires > now).cloned()
    }
}

impl SessionStore for Store {
    fn get(&self, owner: Owner, id: String, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>> {
        self.answer(move || self.live(&owner, &id, now))
    }

    fn put(&self, session: SessionRecord, _now: SystemTime) -> StoreFuture<'_, ()> {
        if *self.behaviour.lock().unwrap() == StoreBehaviour::FailingToPut {
            return async { Err(StoreError::Full { reason: "the disk is full".into() }) }.boxed();
        }
        self.answer(move || {
            self.n_puts.fetch_add(1, Ordering::Relaxed);
            self.sessions.lock().unwrap().insert((session.owner.clone(), session.id.clone()), session);
        })
    }

    fn create(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, bool> {
        self.answer(move || {
            let is_free = self.live(&session.owner, &session.id, now).is_none();
            if is_free {
                self.sessions.lock().unwrap().insert((session.owner.clone(), session.id.clone()), session);
            }
            is_free
        })
    }

    fn find(&self, handle: SessionHandle, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>> {
        self.answer(move || {
            let id = self.handles.lock().unwrap().get(&handle).cloned()?;
            self.live(&handle.owner, &id, now)
        })
    }

    fn bind(&self, handle: SessionHandle, id: String, _now: SystemTime) -> StoreFuture<'_, String> {
        // Keeps handles of removed sessions, as a careless store might.
        self.answer(move || self.handles.lock().unwrap().entry(handle).or_insert(id).clone())
    }

    fn remove(&self, owner: Owner, id: String) -> StoreFuture<'_, bool> {
        self.answer(move || {
            self.handles.lock().unwrap().retain(|handle, bound| handle.owner != owner || *bound != id);
            self.sessions.lock().unwrap().remove(&(owner, id)).is_some()
        })
    }

    fn list(&self, scope: OwnerScope, n_most: usize, _: SystemTime) -> StoreFuture<'_, Vec<SessionRecord>> {
        self.answer(move || {
            let sessions = self.sessions.lock().unwrap();
            let visible = sessions.values().filter(|session| scope.includes(&session.owner));
            visible.take(n_most).cloned().collect()
        })
    }
}

fn ann() -> Owner {
    Owner::new("ann")
}

fn bob() -> Owner {
    Owner::new("bob")
}

/// 02:00 UTC on 2 January 2026, plus some seconds.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_319_200 + seconds)
}

fn sessions() -> (Arc<Store>, SessionRegistry) {
    let store = Store::new();
    (Arc::clone(&store), SessionRegistry::new(store, SessionSettings::default()))
}

/// Enters a session as ann, at a second, with these arguments.
async fn enter(sessions: &SessionRegistry, arguments: Value, second: u64) -> EnteredSession {
    let arguments = arguments.as_object().unwrap();
    sessions.enter(&CallerContext::of(arguments), &ann(), None, at(second)).await.unwrap()
}

fn named(session: &str) -> Value {
    json!({"context": {"sessionId": session}})
}

#[tokio::test]
async fn a_call_without_a_session_name_gets_a_new_session_id() {
    for nothing in [
        json!({}),
        json!({"context": null}),
        json!({"context": "chat"}),
        json!({"context": [1]}),
        json!({"context": {}}),
        json!({"context": {"sessionId": ""}}),
        json!({"context": {"sessionId": 7}, "sessionId": "  "}),
    ] {
        let (_, sessions) = sessions();
        let entered = enter(&sessions, nothing.clone(), 0).await;
        assert_eq!(entered.id.as_str(), "s-20260102020000", "{nothing}");
        assert_eq!((entered.name.as_str(), entered.is_new), ("Default Session", true));
        assert_eq!((entered.requested_name, entered.warning), (None, None));
        assert_eq!(entered.notice, None, "only a name of the caller's own must be exchanged for an id");
    }
}

#[tokio::test]
async fn a_second_call_without_a_name_uses_the_session_of_the_connection() {
    let (_, sessions) = sessions();
    let first = enter(&sessions, json!({}), 0).await;
    let again = |owner: Owner, second| {
        let (sessions, id) = (sessions.clone(), first.id.clone());
        async move { sessions.enter(&CallerContext::default(), &owner, Some(&id), at(second)).await.unwrap() }
    };
    let second = again(ann(), 1).await;
    assert_eq!((&second.id, second.is_new, second.notice), (&first.id, false, None));
    let stranger = again(bob(), 2).await;
    assert!(stranger.is_new, "it is another session, though it has the same id");
    let after_two_days = again(ann(), 2 * 86_400).await;
    assert_eq!((&after_two_days.id, after_two_days.is_new), (&first.id, true));
}

#[tokio::test]
async fn a_handle_refers_to_one_session_and_is_announced_once() {
    let (_, sessions) = sessions();
    let first = enter(&sessions, named("budget work"), 0).await;
    assert_eq!((first.name.as_str(), first.is_new), ("budget work", true));
    assert_eq!(first.requested_name.as_deref(), Some("budget work"));
    insta::assert_snapshot!(
        first.notice.unwrap(),
        @r#"Session s-20260102020000 has begun for "budget work"; pass s-20260102020000 as context.sessionId from now on."#
    );
    let second = enter(&sessions, named(" budget work "), 9).await;
    assert_eq!((&second.id, second.is_new, second.notice), (&first.id, false, None));
    assert_eq!(second.requested_name.as_deref(), Some("budget work"));
    let by_id = enter(&sessions, named(first.id.as_str()), 10).await;
    assert_eq!((by_id.id, by_id.is_new, by_id.requested_name), (first.id, false, None));
}

#[tokio::test]
async fn the_same_handle_of_two_callers_refers_to_two_sessions() {
    let (_, sessions) = sessions();
    let context = CallerContext { session: Some("budget work"), ..CallerContext::default() };
    let ann = sessions.enter(&context, &ann(), None, at(0)).await.unwrap();
    let bob = sessions.enter(&context, &bob(), None, at(0)).await.unwrap();
    // The ids may be equal: each principal has its own.
    assert!(ann.is_new && bob.is_new);
}

#[tokio::test]
async fn the_same_handle_in_two_workspaces_refers_to_two_sessions() {
    let (_, sessions) = sessions();
    let in_workspace = |id: &str| json!({"context": {"sessionId": "notes", "workspaceId": id}});
    let red = enter(&sessions, in_workspace("red"), 0).await;
    let blue = enter(&sessions, in_workspace("blue"), 1).await;
    assert_ne!(red.id, blue.id);
    assert_eq!(enter(&sessions, in_workspace("blue"), 2).await.id, blue.id);
    // Without a workspace, a handle refers to the session in which it was first used.
    assert_eq!(enter(&sessions, named("notes"), 3).await.id, red.id);
    // A caller that first named no workspace was in the default one.
    let plain = enter(&sessions, named("plan"), 4).await;
    let default =
        enter(&sessions, json!({"context": {"sessionId": "plan", "workspaceId": "default"}}), 5).await;
    assert_eq!(plain.id, default.id);
}

#[tokio::test]
async fn an_unused_id_creates_a_session() {
    for id in ["s-20200101000000", "s-20200101000000-0a9f", "s-99999999999999"] {
        let (_, sessions) = sessions();
        let first = enter(&sessions, named(id), 0).await;
        assert_eq!((first.id.as_str(), first.is_new, &first.requested_name), (id, true, &None));
        assert_eq!(first.name, format!("Session {id}"));
        assert_eq!(first.notice, None, "the caller knows the id");
        let second = enter(&sessions, named(id), 1).await;
        assert_eq!((second.id.as_str(), second.is_new, second.notice), (id, false, None));
    }
}

#[tokio::test]
async fn the_session_of_another_principal_does_not_exist() {
    let id = "s-20200101000000";
    let (_, taken) = sessions();
    let in_workspace = json!({"context": {"sessionId": id, "workspaceId": "red"}});
    let of_ann = enter(&taken, in_workspace, 0).await;
    taken.bind(&of_ann, BindOutcome::Succeeded(None), at(0)).await.unwrap();
    let context = CallerContext { session: Some(id), ..CallerContext::default() };
    // Bob gets the same answers as if there were no other session with this id.
    let (_, free) = sessions();
    for second in [1, 2] {
        let of_bob = taken.enter(&context, &bob(), None, at(second)).await.unwrap();
        assert_eq!(of_bob, free.enter(&context, &bob(), None, at(second)).await.unwrap());
        assert_eq!((of_bob.is_new, of_bob.workspace.id.as_str()), (second == 1, "default"));
    }
    let of_bob = taken.enter(&context, &bob(), None, at(3)).await.unwrap();
    let answer = json!({"workspaceContext": {"workspaceId": "blue"}});
    taken.bind(&of_bob, BindOutcome::Succeeded(Some(&answer)), at(3)).await.unwrap();
    assert_eq!(taken.enter(&context, &bob(), None, at(4)).await.unwrap().workspace.id, "blue");
    assert_eq!(enter(&taken, named(id), 4).await.workspace.id, "red");
}

#[test]
fn only_the_standard_form_is_an_id() {
    let check =
        |text: &str, expected: bool| assert_eq!(SessionId::parse(text).is_some(), expected, "{text:?}");
    check("s-20260102030405", true);
    check("s-20260102030405-9f3c", true);
    check("s-2026010203040", false);
    check("s-202601020304055", false);
    check("s-20260102030405-", false);
    check("s-20260102030405-9F3C", false);
    check("s-20260102030405-9f3c1", false);
    check("s-20260102030405-9f3c-9f3c", false);
    check("S-20260102030405", false);
    check(" s-20260102030405", false);
    check("s-20260102030405\n", false);
    check("s-٢٠٢٦٠١٠٢٠٣٠٤٠٥", false);
    check("session_abc123", false);
    check("", false);
}

#[test]
fn the_context_takes_precedence_over_top_level_keys() {
    let check = |arguments: Value, expected: Option<&str>| {
        assert_eq!(CallerContext::of(arguments.as_object().unwrap()).session, expected, "{arguments}");
    };
    check(json!({"sessionId": "top"}), Some("top"));
    check(json!({"sessionId": "top", "context": {}}), Some("top"));
    check(json!({"sessionId": "top", "context": {"sessionId": ""}}), Some("top"));
    check(json!({"sessionId": "top", "context": {"sessionId": "inner"}}), Some("inner"));
    check(json!({"sessionId": {}, "context": {"sessionId": null}}), None);
}

#[test]
fn the_purpose_is_read_from_the_context() {
    let arguments = json!({"context": {
        "sessionDescription": "taxes", "sessionMemory": "read two files", "toolContext": "to find the sum",
        "primaryGoal": "a return", "subgoal": "", "tags": ["tax"], "additionalContext": null,
    }});
    let purpose = CallerContext::of(arguments.as_object().unwrap()).purpose;
    assert_eq!(purpose.session_description, Some("taxes"));
    assert_eq!(purpose.session_memory, Some("read two files"));
    assert_eq!(purpose.tool_context, Some("to find the sum"));
    assert_eq!(purpose.primary_goal, Some("a return"));
    assert_eq!((purpose.subgoal, purpose.additional_context), (None, None));
    assert_eq!(purpose.tags, Some(&json!(["tax"])));
}

#[tokio::test]
async fn an_invalid_name_is_refused_with_the_reason() {
    let (_, sessions) = sessions();
    let refusal = async |session: &str| {
        let context = CallerContext { session: Some(session), ..CallerContext::default() };
        sessions.enter(&context, &ann(), None, at(0)).await.map(|entered| entered.name)
    };
    assert_eq!(refusal(&"é".repeat(128)).await, Ok("é".repeat(128)));
    let too_long = refusal(&"é".repeat(129)).await.unwrap_err();
    assert_eq!(too_long, SessionError::TooLong { n_characters: 129 });
    insta::assert_snapshot!(too_long, @"context.sessionId has 129 characters; give at most 128, or leave it out to get a session");
    let control = refusal("two\nlines").await.unwrap_err();
    assert_eq!(control, SessionError::Control { position: 4 });
    insta::assert_snapshot!(control, @"context.sessionId has a control character at position 4; give plain text in one line");
}

#[tokio::test]
async fn sessions_that_begin_in_the_same_second_have_distinct_ids() {
    let (_, sessions) = sessions();
    let mut ids = HashSet::new();
    for number in 0..50 {
        let entered = enter(&sessions, named(&format!("work {number}")), 0).await;
        assert!(entered.id.as_str().starts_with("s-20260102020000"), "{}", entered.id);
        assert!(ids.insert(entered.id));
    }
}

#[tokio::test]
async fn concurrent_uses_of_a_new_handle_share_one_session() {
    let (store, sessions) = sessions();
    let enter_now = || enter(&sessions, named("budget work"), 0);
    let (first, second) = tokio::join!(enter_now(), enter_now());
    assert_eq!(first.id, second.id);
    assert_eq!(store.sessions.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_workspace_comes_from_the_first_source_that_names_one() {
    use WorkspaceSource::{Context, Default, Session, WorkspaceContext};
    let check = |arguments: Value, bound: Option<&str>, id: &str, source: WorkspaceSource| {
        let workspace = CallerContext::of(arguments.as_object().unwrap()).workspace(bound);
        assert_eq!((workspace.id.as_str(), workspace.source), (id, source), "{arguments} {bound:?}");
    };
    let outer = |value: Value| json!({"workspaceContext": value, "context": {"workspaceId": "inner"}});
    check(outer(json!({"workspaceId": "outer"})), Some("bound"), "outer", WorkspaceContext);
    check(outer(json!(r#"{"workspaceId": "outer"}"#)), Some("bound"), "outer", WorkspaceContext);
    check(json!({"workspaceContext": {"workspaceId": "outer"}}), None, "outer", WorkspaceContext);
    for nothing in [
        json!(null),
        json!("{not json"),
        json!("\"outer\""),
        json!("[".repeat(60_000)),
        json!("x".repeat(70_000)),
        json!({}),
        json!({"workspaceId": ""}),
        json!({"workspaceId": "   "}),
        json!({"workspaceId": 7}),
        json!({"workspaceId": "x".repeat(129)}),
        json!({"workspaceId": "a\u{0}b"}),
        json!(["outer"]),
    ] {
        check(outer(nothing), Some("bound"), "inner", Context);
    }
    check(json!({"context": {"workspaceId": ""}}), Some("bound"), "bound", Session);
    check(json!({"context": {"workspaceId": "a\nb"}}), Some("bound"), "bound", Session);
    check(json!({"context": {"workspaceId": ""}}), None, "default", Default);
    check(json!({}), None, "default", Default);
    assert_eq!(serde_json::to_value(WorkspaceContext).unwrap(), "workspaceContext");
}

#[tokio::test]
async fn a_named_workspace_is_bound_after_a_successful_call() {
    let (_, sessions) = sessions();
    let naming = json!({"context": {"sessionId": "notes", "workspaceId": "red"}});
    let entered = enter(&sessions, naming.clone(), 0).await;
    assert_eq!(sessions.bind(&entered, BindOutcome::Failed, at(1)).await, Ok(None));
    let workspace = enter(&sessions, named("notes"), 2).await.workspace;
    assert_eq!((workspace.id.as_str(), workspace.source), ("default", WorkspaceSource::Default));

    let bound = sessions.bind(&entered, BindOutcome::Succeeded(None), at(3)).await;
    assert_eq!(bound, Ok(Some("red".to_owned())));
    let workspace = enter(&sessions, named("notes"), 4).await.workspace;
    assert_eq!((workspace.id.as_str(), workspace.source), ("red", WorkspaceSource::Session));
    let again = enter(&sessions, naming, 5).await;
    assert_eq!(sessions.bind(&again, BindOutcome::Succeeded(None), at(6)).await, Ok(None));
}

#[tokio::test]
async fn a_result_that_names_a_workspace_binds_the_session_to_it() {
    let (_, sessions) = sessions();
    let entered = enter(&sessions, json!({"context": {"sessionId": "notes", "workspaceId": "red"}}), 0).await;
    for (result, expected) in [
        (json!({"workspaceContext": {"workspaceId": "blue"}}), "blue"),
        (json!({"workspaceContext": r#"{"workspaceId": "green"}"#}), "green"),
        (json!({"workspaceContext": {"workspaceId": ""}}), "red"),
        (json!("no object"), "red"),
    ] {
        sessions.bind(&entered, BindOutcome::Succeeded(Some(&result)), at(1)).await.unwrap();
        let workspace = enter(&sessions, named("notes"), 2).await.workspace;
        assert_eq!(
            (workspace.id.as_str(), workspace.source),
            (expected, WorkspaceSource::Session),
            "{result}"
        );
    }
}

#[test]
fn keys_declared_by_the_tool_are_not_runtime_keys() {
    let check = |schema: Value, expected: &[&str]| {
        assert_eq!(runtime_keys(&schema).collect::<Vec<_>>(), expected, "{schema}");
    };
    check(json!({}), &["context", "workspaceContext", "sessionId"]);
    check(json!(true), &["context", "workspaceContext", "sessionId"]);
    check(json!({"properties": {"sessionId": {}}}), &["context", "workspaceContext"]);
    check(json!({"properties": {"context": {}}}), &["workspaceContext", "sessionId"]);
}

#[tokio::test]
async fn a_session_expires_only_when_idle() {
    let (store, sessions) = sessions();
    let first = enter(&sessions, named("notes"), 0).await;
    let almost_a_day = 86_399;
    for day in 1..5 {
        let again = enter(&sessions, named("notes"), day * almost_a_day).await;
        assert_eq!((&again.id, again.is_new), (&first.id, false), "day {day}");
    }
    assert_eq!(store.n_puts.load(Ordering::Relaxed), 4);
    let late = enter(&sessions, named("notes"), 4 * almost_a_day + 86_400).await;
    assert!(late.is_new && late.id != first.id, "{late:?}");
    let after = enter(&sessions, named("notes"), 4 * almost_a_day + 86_401).await;
    assert_eq!((after.id, after.is_new), (late.id, false));
}

#[tokio::test]
async fn last_use_is_written_at_most_once_a_minute() {
    let (store, sessions) = sessions();
    let check = async |second, n_puts| {
        enter(&sessions, named("notes"), second).await;
        assert_eq!(store.n_puts.load(Ordering::Relaxed), n_puts, "second {second}");
    };
    check(100, 0).await;
    check(101, 0).await;
    check(159, 0).await;
    check(160, 1).await;
    check(200, 1).await;
    // A clock that goes backwards causes no write.
    check(30, 1).await;
    check(220, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_costs_the_lookup_but_not_the_call() {
    let (store, sessions) = sessions();
    let known = enter(&sessions, named("notes"), 0).await;
    for (behaviour, warning) in [
        (StoreBehaviour::Failing, "Cannot look up the session: the store failed: the disk is gone."),
        (StoreBehaviour::Silent, "Cannot look up the session: the store failed: no response within 5s."),
    ] {
        store.set_behaviour(behaviour);
        let by_id = enter(&sessions, named(known.id.as_str()), 1).await;
        assert_eq!((&by_id.id, by_id.is_new, &by_id.notice), (&known.id, false, &None));
        assert_eq!(by_id.warning.as_deref(), Some(warning));
        let connected =
            sessions.enter(&CallerContext::default(), &ann(), Some(&known.id), at(2)).await.unwrap();
        assert_eq!((&connected.id, connected.is_new), (&known.id, false));
        for (arguments, has_notice) in [(named("other"), true), (json!({}), false)] {
            let fresh = enter(&sessions, arguments, 3).await;
            assert!(fresh.is_new && fresh.notice.is_some() == has_notice && fresh.warning.is_some());
            assert_eq!(fresh.id.as_str().len(), "s-20260102020003-0000".len(), "it has a tag: {}", fresh.id);
        }
        // A session that could not be looked up may belong to another principal, so it is not changed.
        let naming = json!({"context": {"sessionId": known.id, "workspaceId": "red"}});
        let unchecked = enter(&sessions, naming, 4).await;
        store.set_behaviour(StoreBehaviour::Well);
        assert_eq!(sessions.bind(&unchecked, BindOutcome::Succeeded(None), at(5)).await, Ok(None));
    }
}

#[tokio::test]
async fn a_store_that_cannot_write_still_finds_known_sessions() {
    let (store, sessions) = sessions();
    let known = enter(&sessions, named("notes"), 0).await;
    store.set_behaviour(StoreBehaviour::FailingToPut);
    let again = enter(&sessions, named("notes"), 61).await;
    assert_eq!((again.id, again.is_new), (known.id, false));
    assert_eq!(again.warning.unwrap(), "The session may expire early: the store is full: the disk is full.");
}

#[tokio::test]
async fn extreme_settings_and_clocks_are_harmless() {
    let check = async |idle, now, id: &str| {
        let sessions = SessionRegistry::new(
            Store::new(),
            SessionSettings { idle_timeout: idle, ..SessionSettings::default() },
        );
        let entered = sessions.enter(&CallerContext::default(), &ann(), None, now).await.unwrap();
        assert_eq!(entered.id.as_str(), id);
    };
    check(Duration::MAX, at(0), "s-20260102020000").await;
    check(Duration::ZERO, at(0), "s-20260102020000").await;
    check(Duration::MAX, UNIX_EPOCH - Duration::from_hours(1), "s-19700101000000").await;
    check(Duration::MAX, UNIX_EPOCH + Duration::from_hours(24 * 365 * 50_000), "s-99991231235959").await;
}

proptest! {
    #[test]
    fn any_name_leads_to_an_id_or_an_error(session in ".{0,140}|s-[0-9]{13,15}(-[0-9a-g]{3,5})?") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (_, sessions) = sessions();
        let arguments = json!({"context": {"sessionId": session}});
        let context = CallerContext::of(arguments.as_object().unwrap());
        let enter = || runtime.block_on(sessions.enter(&context, &ann(), None, at(0)));
        match enter() {
            Ok(first) => {
                prop_assert!(SessionId::parse(first.id.as_str()).is_some());
                prop_assert!(!first.notice.unwrap_or_default().contains('\n'));
                if context.session.is_some() {
                    prop_assert_eq!(enter().unwrap().id, first.id);
                }
            }
            Err(SessionError::TooLong { n_characters }) => prop_assert!(n_characters > 128),
            Err(SessionError::Control { position }) => {
                prop_assert!(context.session.unwrap().chars().nth(position - 1).unwrap().is_control());
            }
        }
    }
}
