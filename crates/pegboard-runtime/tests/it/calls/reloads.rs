//! Switching to another plan, unnoticed by callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all, ready};
use pegboard_core::call::{Call, Invoker};
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::owner::OwnerScope;
use pegboard_core::provider::{LocalProvider, Provider, ServerOffering, ServerState, ToolKind};
use pegboard_core::settings::RuntimeSettings;
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::{CallerOptions, PlanChanges, Runtime, RuntimePlan, SessionMode};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use crate::calls::fixtures::{SlowServer, call, caller, line, name_tool, settle};

/// A server with calls that fail once it is shut down, as those of a process do. Its tool `nap` returns its
/// name.
struct MortalServer {
    offer: watch::Sender<Arc<ServerOffering>>,
    state: watch::Sender<ServerState>,
    is_over: Arc<AtomicBool>,
    living: Arc<AtomicUsize>,
}

impl MortalServer {
    fn new(answer: &'static str, living: &Arc<AtomicUsize>) -> Arc<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        living.fetch_add(1, Ordering::SeqCst);
        let over = Arc::clone(&is_over);
        let nap = ToolEntry::from_fn("nap", "", move |arguments: Value| {
            let over = Arc::clone(&over);
            async move {
                time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0))).await;
                if over.load(Ordering::SeqCst) {
                    return Err(ToolError::new("the server has ended"));
                }
                Ok(answer)
            }
        });
        let offer = ServerOffering { tools: vec![Arc::new(nap)], ..ServerOffering::default() };
        Arc::new(Self {
            offer: watch::Sender::new(Arc::new(offer)),
            state: watch::Sender::new(ServerState::Ready),
            is_over,
            living: Arc::clone(living),
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl Provider for MortalServer {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.offer.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        ready(Ok(())).boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        if !self.is_over.swap(true, Ordering::SeqCst) {
            self.living.fetch_sub(1, Ordering::SeqCst);
        }
        ready(()).boxed()
    }
}

/// A plan with these servers and default settings.
fn plan(servers: &[(&str, &Arc<MortalServer>)]) -> RuntimePlan {
    servers.iter().fold(RuntimePlan::new(), |plan, (name, server)| plan.provide(name, Arc::clone(server)))
}

async fn replace(runtime: &Runtime, plan: RuntimePlan) -> PlanChanges {
    runtime.prepare(plan).await.unwrap().apply()
}

/// Formats the changes as one line.
fn summary(changes: &PlanChanges) -> String {
    let PlanChanges { added, removed, replaced, adjusted, settings } = changes;
    let all = [("+", added), ("-", removed), ("~", replaced), ("=", adjusted)];
    let each = all.iter().flat_map(|(mark, places)| {
        places.iter().map(move |ServerId { toolbox, server }| format!("{mark}{toolbox}/{server}"))
    });
    each.chain(settings.then(|| "settings".to_owned())).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_thousand_reloads_under_load_fail_no_call_and_leak_nothing() {
    let living = Arc::new(AtomicUsize::new(0));
    let stays = MortalServer::new("stays", &living);
    let first = MortalServer::new("changes", &living);
    let runtime =
        Runtime::builder().plan(plan(&[("stays", &stays), ("changes", &first)])).start().await.unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    settle().await;
    let n_tasks = Handle::current().metrics().num_alive_tasks();
    let load = (0..20_u64).map(|number| {
        let (caller, is_done) = (caller(&runtime), Arc::clone(&is_done));
        tokio::spawn(async move {
            let mut n_calls = 0;
            while !is_done.load(Ordering::SeqCst) {
                // Some calls span many reloads, some none.
                let ms = (number * 7 + n_calls * 13) % 40;
                let server = if (number + n_calls) % 2 == 0 { "stays" } else { "changes" };
                let ended = call(&caller, &format!("{server}__nap"), json!({"ms": ms})).await;
                assert_eq!(line(&ended), server);
                n_calls += 1;
            }
            n_calls
        })
    });
    let load: Vec<_> = load.collect();
    for round in 0..1_000 {
        let (next, guest) = (MortalServer::new("changes", &living), MortalServer::new("guest", &living));
        let mut servers = vec![("stays", &stays), ("changes", &next)];
        if round % 2 == 0 {
            servers.push(("guest", &guest));
        } else {
            guest.shut_down().await;
        }
        let changes = replace(&runtime, plan(&servers)).await;
        let guest = if round % 2 == 0 { "+default/guest" } else { "-default/guest" };
        let guests: Vec<_> = summary(&changes).split(' ').map(str::to_owned).collect();
        assert!(guests.contains(&guest.to_owned()) && guests.contains(&"~default/changes".to_owned()));
        time::sleep(Duration::from_millis(1)).await;
    }
    is_done.store(true, Ordering::SeqCst);
    let n_calls: u64 = join_all(load).await.into_iter().map(Result::unwrap).sum();
    assert!(n_calls > 500, "{n_calls}");
    settle().await;
    assert_eq!(living.load(Ordering::SeqCst), 2, "all that were replaced have ended");
    assert!(!stays.is_over());
    assert_eq!(Handle::current().metrics().num_alive_tasks(), n_tasks);
}

#[tokio::test(start_paused = true)]
async fn a_running_call_of_a_removed_tool_finishes_before_its_server_shuts_down() {
    let living = Arc::default();
    let (goes, stays) = (MortalServer::new("goes", &living), MortalServer::new("stays", &living));
    let runtime = Runtime::builder().plan(plan(&[("goes", &goes), ("stays", &stays)])).start().await.unwrap();
    let caller = caller(&runtime);
    let running = tokio::spawn(caller.start(Call::new("goes__nap", json!({"ms": 60_000}))));
    settle().await;
    assert_eq!(summary(&replace(&runtime, plan(&[("stays", &stays)])).await), "-default/goes");
    let ended = call(&caller, "goes__nap", json!({})).await;
    insta::assert_snapshot!(line(&ended), @"unknown_tool: Unknown tool: goes__nap. Did you mean 'stays__nap'?");
    time::sleep(Duration::from_secs(59)).await;
    assert!(!goes.is_over());
    assert_eq!(line(&running.await.unwrap()), "goes");
    settle().await;
    assert!(goes.is_over() && !stays.is_over());
}

#[tokio::test(start_paused = true)]
async fn an_endless_call_does_not_keep_its_server_forever() {
    let living = Arc::default();
    let goes = MortalServer::new("goes", &living);
    let runtime = Runtime::builder().plan(plan(&[("goes", &goes)])).start().await.unwrap();
    let caller = caller(&runtime);
    let mut endless = Call::new("goes__nap", json!({"ms": 100_000_000}));
    endless.context.options.disable_global_timeout = true;
    let _running = tokio::spawn(caller.start(endless));
    settle().await;
    replace(&runtime, RuntimePlan::new()).await;
    time::sleep(Duration::from_mins(59)).await;
    assert!(!goes.is_over());
    time::sleep(Duration::from_mins(2)).await;
    assert!(goes.is_over());
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_replaced_servers() {
    let living = Arc::default();
    let goes = MortalServer::new("goes", &living);
    let runtime = Runtime::builder().plan(plan(&[("goes", &goes)])).start().await.unwrap();
    let running = tokio::spawn(caller(&runtime).start(Call::new("goes__nap", json!({"ms": 100_000}))));
    settle().await;
    replace(&runtime, RuntimePlan::new()).await;
    let begun = Instant::now();
    assert_eq!(runtime.shut_down(Duration::from_secs(1)).await, 1);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert!(goes.is_over() && running.await.unwrap().result.is_err());
    // A call that comes too late is refused.
    let late = MortalServer::new("late", &living);
    assert!(replace(&runtime, plan(&[("late", &late)])).await.is_empty());
    assert!(runtime.servers(&OwnerScope::All).is_empty());
}

#[tokio::test(start_paused = true)]
async fn servers_of_both_plans_continue_undisturbed() {
    let living = Arc::default();
    let stays = MortalServer::new("stays", &living);
    let chain: ChainSpec = serde_json::from_value(json!({
        "chain": "twice", "steps": [{"tool": "stays__nap"}]
    }))
    .unwrap();
    let plan = || {
        let plan = RuntimePlan::new().toolbox("t", "T").chain(chain.clone());
        plan.provide("stays", Arc::clone(&stays))
    };
    let runtime = Runtime::builder().plan(plan()).start().await.unwrap();
    let session =
        runtime.caller(CallerOptions { session_mode: SessionMode::Session, ..CallerOptions::default() });
    session.open("t").await.unwrap();
    settle().await;
    let before = runtime.catalogue();
    assert!(replace(&runtime, plan()).await.is_empty());
    let after = runtime.catalogue();
    assert_eq!(after.tools().len(), 2);
    assert!(before.tools().iter().zip(after.tools()).all(|(before, after)| Arc::ptr_eq(before, after)));
    assert_eq!(line(&call(&session, "stays__nap", json!({})).await), "stays");

    let settings = serde_json::from_value(json!({"tools": {"nap": {"aliases": ["rest"]}}})).unwrap();
    let adjusted = RuntimePlan::new().toolbox("t", "Else").chain(chain.clone());
    let adjusted = adjusted.provide("stays", Arc::clone(&stays)).server_settings(settings);
    assert_eq!(summary(&replace(&runtime, adjusted).await), "=t/stays settings");
    assert_eq!(line(&call(&session, "rest", json!({})).await), "stays");
    assert!(!stays.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_replacement_takes_over_when_it_is_ready() {
    let runtime =
        Runtime::builder().provide("s", LocalProvider::new([name_tool("before")])).start().await.unwrap();
    let caller = caller(&runtime);
    let (next, n_opened) = SlowServer::new(&["before", "after"], None);
    let preparing = runtime.prepare(RuntimePlan::new().provide("s", next));
    let meanwhile = async {
        time::sleep(Duration::from_millis(900)).await;
        line(&call(&caller, "s__before", json!({})).await)
    };
    let (prepared, meanwhile) = tokio::join!(preparing, meanwhile);
    assert_eq!(meanwhile, "before");
    prepared.unwrap().apply();
    assert_eq!(n_opened.load(Ordering::SeqCst), 1);
    let names: Vec<_> = runtime.catalogue().tools().iter().map(|tool| tool.flat_name.to_string()).collect();
    assert_eq!(names, ["s__before", "s__after"]);

    let begun = Instant::now();
    replace(&runtime, RuntimePlan::new().provide("s", SlowServer::stuck())).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10), "one that hangs holds nothing up");
}

#[tokio::test(start_paused = true)]
async fn a_call_waiting_for_a_server_uses_its_replacement() {
    let (slow, _) = SlowServer::new(&["x"], None);
    let runtime = Runtime::builder().provide("s", slow).start().await.unwrap();
    let caller = caller(&runtime);
    let waiting = tokio::spawn({
        let caller = caller.clone();
        async move { line(&call(&caller, "s__x", json!({})).await) }
    });
    let opening = tokio::spawn(async move { caller.open("default").await.unwrap().servers_connected });
    time::sleep(Duration::from_millis(500)).await;
    let (broken, _) = SlowServer::new(&[], Some("it is broken"));
    replace(&runtime, RuntimePlan::new().provide("s", broken)).await;
    replace(&runtime, RuntimePlan::new().provide("s", SlowServer::at_once(&["x"]))).await;
    assert_eq!(waiting.await.unwrap(), "x");
    assert_eq!(opening.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn queues_are_resized_and_removed_ones_serve_earlier_calls() {
    let living = Arc::default();
    let server = MortalServer::new("done", &living);
    let queued = |settings: Value, server_settings: Value| {
        let settings: RuntimeSettings = serde_json::from_value(settings).unwrap();
        let server_settings = serde_json::from_value(server_settings).unwrap();
        RuntimePlan::new()
            .settings(settings)
            .provide("s", Arc::clone(&server))
            .server_settings(server_settings)
    };
    let narrow = || queued(json!({"queues": {"q": {"concurrent": 1}}}), json!({"queue": "q"}));
    let wide = || queued(json!({"queues": {"q": {"concurrent": 3}}}), json!({"queue": "q"}));
    let none = || queued(json!({}), json!({}));
    let runtime = Runtime::builder().plan(narrow()).start().await.unwrap();
    let caller = caller(&runtime);
    let begun = Instant::now();
    let nap = || tokio::spawn(caller.start(Call::new("s__nap", json!({"ms": 1000}))));
    let three = [nap(), nap(), nap()];
    settle().await;
    assert_eq!(summary(&replace(&runtime, wide()).await), "settings");
    for ended in join_all(three).await {
        assert_eq!(line(&ended.unwrap()), "done");
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "those who waited go with the others");
    replace(&runtime, narrow()).await;
    let two = [nap(), nap()];
    settle().await;
    assert_eq!(summary(&replace(&runtime, none()).await), "=default/s settings");
    for ended in join_all(two).await {
        assert_eq!(line(&ended.unwrap()), "done");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_plan_changes_nothing() {
    let living = Arc::default();
    let server = MortalServer::new("here", &living);
    let runtime = Runtime::builder().plan(plan(&[("s", &server)])).start().await.unwrap();
    let before = runtime.catalogue();
    let settings = serde_json::from_value(json!({"queue": "nowhere"})).unwrap();
    let broken =
        RuntimePlan::new().provide("s", MortalServer::new("other", &living)).server_settings(settings);
    let error = runtime.prepare(broken).await.err().unwrap();
    insta::assert_snapshot!(error, @"MCP server 's' references unknown queue 'nowhere'. Add it under configuration.queues.");
    assert!(Arc::ptr_eq(&before, &runtime.catalogue()));
    assert_eq!(line(&call(&caller(&runtime), "s__nap", json!({})).await), "here");
}
