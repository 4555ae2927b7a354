//! Another plan takes the place of the one that is carried out, and nobody who calls notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all, ready};
use pegboard_core::call::{Call, Invoker};
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::provider::{Local, Offer, Provider, ServerState, ToolKind};
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::{CallerOptions, Changes, Memory, Plan, Runtime};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use crate::board::{Slow, call, caller, line, says, settle};

/// A server whose calls fail once it has ended, as those of a program do. Its tool `nap` answers which one it is.
struct Mortal {
    offer: watch::Sender<Arc<Offer>>,
    state: watch::Sender<ServerState>,
    is_over: Arc<AtomicBool>,
    living: Arc<AtomicUsize>,
}

impl Mortal {
    fn new(says: &'static str, living: &Arc<AtomicUsize>) -> Arc<Self> {
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
                Ok(says)
            }
        });
        let offer = Offer { tools: vec![Arc::new(nap)], ..Offer::default() };
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

impl Provider for Mortal {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
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

/// A plan of these servers, each with the same settings.
fn plan(servers: &[(&str, &Arc<Mortal>)]) -> Plan {
    servers.iter().fold(Plan::new(), |plan, (name, server)| {
        plan.provide_with(name, Arc::clone(server) as _, ServerSettings::default())
    })
}

async fn replace(runtime: &Runtime, plan: Plan) -> Changes {
    runtime.prepare(plan).await.unwrap().take_effect()
}

/// What changed, as one line.
fn told(changes: &Changes) -> String {
    let Changes { added, removed, replaced, adjusted, settings } = changes;
    let all = [("+", added), ("-", removed), ("~", replaced), ("=", adjusted)];
    let each = all.iter().flat_map(|(mark, places)| {
        places.iter().map(move |ServerId { toolbox, server }| format!("{mark}{toolbox}/{server}"))
    });
    each.chain(settings.then(|| "settings".to_owned())).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_thousand_reloads_under_load_fail_no_call_and_leave_nothing_behind() {
    let living = Arc::new(AtomicUsize::new(0));
    let stays = Mortal::new("stays", &living);
    let first = Mortal::new("changes", &living);
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
                // Some last for many reloads, some for none.
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
        let (next, guest) = (Mortal::new("changes", &living), Mortal::new("guest", &living));
        let mut servers = vec![("stays", &stays), ("changes", &next)];
        if round % 2 == 0 {
            servers.push(("guest", &guest));
        } else {
            guest.shut_down().await;
        }
        let changes = replace(&runtime, plan(&servers)).await;
        let guest = if round % 2 == 0 { "+default/guest" } else { "-default/guest" };
        let guests: Vec<_> = told(&changes).split(' ').map(str::to_owned).collect();
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
async fn the_running_call_of_a_tool_that_goes_ends_well_and_its_server_after_it() {
    let living = Arc::default();
    let (goes, stays) = (Mortal::new("goes", &living), Mortal::new("stays", &living));
    let runtime = Runtime::builder().plan(plan(&[("goes", &goes), ("stays", &stays)])).start().await.unwrap();
    let caller = caller(&runtime);
    let running = tokio::spawn(caller.start(Call::new("goes__nap", json!({"ms": 60_000}))));
    settle().await;
    assert_eq!(told(&replace(&runtime, plan(&[("stays", &stays)])).await), "-default/goes");
    let ended = call(&caller, "goes__nap", json!({})).await;
    insta::assert_snapshot!(line(&ended), @"unknown_tool: Unknown tool: goes__nap. Did you mean 'stays__nap'?");
    time::sleep(Duration::from_secs(59)).await;
    assert!(!goes.is_over());
    assert_eq!(line(&running.await.unwrap()), "goes");
    settle().await;
    assert!(goes.is_over() && !stays.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_end_does_not_keep_its_server_for_ever() {
    let living = Arc::default();
    let goes = Mortal::new("goes", &living);
    let runtime = Runtime::builder().plan(plan(&[("goes", &goes)])).start().await.unwrap();
    let caller = caller(&runtime);
    let mut endless = Call::new("goes__nap", json!({"ms": 100_000_000}));
    endless.context.options.disable_global_timeout = true;
    let _running = tokio::spawn(caller.start(endless));
    settle().await;
    replace(&runtime, Plan::new()).await;
    time::sleep(Duration::from_mins(59)).await;
    assert!(!goes.is_over());
    time::sleep(Duration::from_mins(2)).await;
    assert!(goes.is_over());
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_the_runtime_does_not_wait_for_servers_that_were_replaced() {
    let living = Arc::default();
    let goes = Mortal::new("goes", &living);
    let runtime = Runtime::builder().plan(plan(&[("goes", &goes)])).start().await.unwrap();
    let running = tokio::spawn(caller(&runtime).start(Call::new("goes__nap", json!({"ms": 100_000}))));
    settle().await;
    replace(&runtime, Plan::new()).await;
    let begun = Instant::now();
    assert_eq!(runtime.shut_down(Duration::from_secs(1)).await, 1);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert!(goes.is_over() && running.await.unwrap().result.is_err());
    // What comes too late is not begun.
    let late = Mortal::new("late", &living);
    assert!(replace(&runtime, plan(&[("late", &late)])).await.is_empty());
    assert!(runtime.servers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_both_plans_have_goes_on_as_it_is() {
    let living = Arc::default();
    let stays = Mortal::new("stays", &living);
    let chain: ChainSpec = serde_json::from_value(json!({
        "chain": "twice", "steps": [{"tool": "stays__nap"}]
    }))
    .unwrap();
    let plan = || {
        let plan = Plan::new().toolbox("t", "T").chain(chain.clone());
        plan.provide_with("stays", Arc::clone(&stays) as _, ServerSettings::default())
    };
    let runtime = Runtime::builder().plan(plan()).start().await.unwrap();
    let session = runtime.caller(CallerOptions { memory: Memory::Session, ..CallerOptions::default() });
    session.open("t").await.unwrap();
    settle().await;
    let before = runtime.catalogue();
    assert!(replace(&runtime, plan()).await.is_empty());
    let after = runtime.catalogue();
    assert_eq!(after.tools().len(), 2);
    assert!(before.tools().iter().zip(after.tools()).all(|(before, after)| Arc::ptr_eq(before, after)));
    assert_eq!(line(&call(&session, "stays__nap", json!({})).await), "stays");

    let settings = serde_json::from_value(json!({"tools": {"nap": {"aliases": ["rest"]}}})).unwrap();
    let adjusted = Plan::new().toolbox("t", "Else").chain(chain.clone());
    let adjusted = adjusted.provide_with("stays", Arc::clone(&stays) as _, settings);
    assert_eq!(told(&replace(&runtime, adjusted).await), "=t/stays settings");
    assert_eq!(line(&call(&session, "rest", json!({})).await), "stays");
    assert!(!stays.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_server_takes_over_when_it_is_ready() {
    let runtime = Runtime::builder().provide("s", Local::new([says("before")])).start().await.unwrap();
    let caller = caller(&runtime);
    let (next, n_opened) = Slow::new(&["before", "after"], None);
    let preparing = runtime.prepare(Plan::new().provide("s", next));
    let meanwhile = async {
        time::sleep(Duration::from_millis(900)).await;
        line(&call(&caller, "s__before", json!({})).await)
    };
    let (prepared, meanwhile) = tokio::join!(preparing, meanwhile);
    assert_eq!(meanwhile, "before");
    prepared.unwrap().take_effect();
    assert_eq!(n_opened.load(Ordering::SeqCst), 1);
    let names: Vec<_> = runtime.catalogue().tools().iter().map(|tool| tool.flat_name.to_string()).collect();
    assert_eq!(names, ["s__before", "s__after"]);

    let begun = Instant::now();
    replace(&runtime, Plan::new().provide("s", Slow::stuck())).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10), "one that hangs holds nothing up");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_server_gets_what_took_its_place() {
    let (slow, _) = Slow::new(&["x"], None);
    let runtime = Runtime::builder().provide("s", slow).start().await.unwrap();
    let caller = caller(&runtime);
    let waiting = tokio::spawn({
        let caller = caller.clone();
        async move { line(&call(&caller, "s__x", json!({})).await) }
    });
    let opening = tokio::spawn(async move { caller.open("default").await.unwrap().servers_connected });
    time::sleep(Duration::from_millis(500)).await;
    let (broken, _) = Slow::new(&[], Some("it is broken"));
    replace(&runtime, Plan::new().provide("s", broken)).await;
    replace(&runtime, Plan::new().provide("s", Slow::at_once(&["x"]))).await;
    assert_eq!(waiting.await.unwrap(), "x");
    assert_eq!(opening.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn queues_are_resized_and_those_that_go_serve_who_came_before() {
    let living = Arc::default();
    let server = Mortal::new("done", &living);
    let queued = |settings: Value, server_settings: Value| {
        let settings: RuntimeSettings = serde_json::from_value(settings).unwrap();
        let server_settings = serde_json::from_value(server_settings).unwrap();
        Plan::new().settings(settings).provide_with("s", Arc::clone(&server) as _, server_settings)
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
    assert_eq!(told(&replace(&runtime, wide()).await), "settings");
    for ended in join_all(three).await {
        assert_eq!(line(&ended.unwrap()), "done");
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "those who waited go with the others");
    replace(&runtime, narrow()).await;
    let two = [nap(), nap()];
    settle().await;
    assert_eq!(told(&replace(&runtime, none()).await), "=default/s settings");
    for ended in join_all(two).await {
        assert_eq!(line(&ended.unwrap()), "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_cannot_be_carried_out_changes_nothing() {
    let living = Arc::default();
    let server = Mortal::new("here", &living);
    let runtime = Runtime::builder().plan(plan(&[("s", &server)])).start().await.unwrap();
    let before = runtime.catalogue();
    let settings = serde_json::from_value(json!({"queue": "nowhere"})).unwrap();
    let broken = Plan::new().provide_with("s", Mortal::new("other", &living), settings);
    let error = runtime.prepare(broken).await.err().unwrap();
    insta::assert_snapshot!(error, @"MCP server 's' references unknown queue 'nowhere'. Add it under configuration.queues.");
    assert!(Arc::ptr_eq(&before, &runtime.catalogue()));
    assert_eq!(line(&call(&caller(&runtime), "s__nap", json!({})).await), "here");
}
