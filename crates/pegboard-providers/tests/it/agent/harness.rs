//! Harness for agents: a scripted model server, a runtime with a few tools, and summaries of results.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, SystemTime};

use indexmap::IndexMap;
use pegboard_core::call::{Call, CallOrigin, CallResult, Invoker};
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ToolName;
use pegboard_core::model::{ModelProviderName, Pricing};
use pegboard_core::provider::{LocalProvider, ToolKind};
use pegboard_core::secret::Secret;
use pegboard_core::settings::RuntimeSettings;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings, ModelSettings};
use pegboard_core::trace::TraceParent;
use pegboard_providers::agent::{AgentEnvironment, AgentRegistry};
use pegboard_providers::model::Models;
use pegboard_runtime::event::RuntimeEvent;
use pegboard_runtime::spans::TracePropagator;
use pegboard_runtime::{Caller, CallerOptions, Runtime};
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction, ScriptTurn, TurnCondition};
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Nonce of every session.
pub(crate) const NONCE: &str = "5e55";

/// Creates an agent that uses the model `p/{name}`.
pub(crate) fn agent(name: &str) -> AgentSettings {
    AgentSettings {
        path: format!("{name}.ai").into(),
        description: format!("Does {name}."),
        models: vec![format!("p/{name}").parse().unwrap()],
        prompt: format!("You are {name}."),
        max_retries: 1,
        llm_timeout: Duration::from_secs(20),
        ..AgentSettings::new(ToolName::new(name).unwrap())
    }
}

pub(crate) fn names<const N: usize>(names: [&str; N]) -> Vec<ToolName> {
    names.map(|name| ToolName::new(name).unwrap()).to_vec()
}

/// Scripts the next turn of an agent's model.
pub(crate) fn on_turn(agent: &str, act: ScriptAction) -> ScriptTurn {
    ScriptTurn { when: TurnCondition { model: Some(agent.to_owned()), contains: None }, times: 1, act }
}

/// Creates a reply with a final report as text.
pub(crate) fn report(format: &str, text: &str) -> ScriptAction {
    ScriptAction::text(&format!(
        "Here it is.\n<final-report-{NONCE} format=\"{format}\" status=\"success\">\n{text}\n</final-report-{NONCE}>"
    ))
}

/// Creates the arguments for a sub-agent.
pub(crate) fn prompt(text: &str) -> Value {
    json!({"prompt": text, "reason": "to know", "format": "sub-agent"})
}

/// Counters of tool executions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolActivity {
    n_begun: Arc<AtomicUsize>,
    n_running: Arc<AtomicUsize>,
}

impl ToolActivity {
    pub(crate) fn n_begun(&self) -> usize {
        self.n_begun.load(Ordering::SeqCst)
    }

    pub(crate) fn n_running(&self) -> usize {
        self.n_running.load(Ordering::SeqCst)
    }

    fn start(&self) -> ActivityGuard {
        self.n_begun.fetch_add(1, Ordering::SeqCst);
        self.n_running.fetch_add(1, Ordering::SeqCst);
        ActivityGuard(self.clone())
    }
}

struct ActivityGuard(ToolActivity);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.n_running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Recorded spans with the number of their parent.
#[derive(Debug, Default)]
pub(crate) struct SpanTree(Mutex<Vec<(&'static str, u64)>>);

impl SpanTree {
    /// Renders the spans in start order, indented below their parents.
    pub(crate) fn render(&self) -> String {
        let spans = self.0.lock().unwrap();
        let above = |number: u64| spans.get(usize::try_from(number).ok()?.checked_sub(1)?);
        let depth = |parent: u64| std::iter::successors(above(parent), |(_, parent)| above(*parent)).count();
        let line = |(name, parent): &(&str, u64)| format!("{}{name}", "  ".repeat(depth(*parent)));
        spans.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl TracePropagator for SpanTree {
    fn attach(&self, span: &tracing::Span, parent: Option<TraceParent>) -> Option<TraceParent> {
        let mut spans = self.0.lock().unwrap();
        let name = span.metadata().map_or("?", tracing::Metadata::name);
        spans.push((name, parent.map_or(0, |parent| parent.span_id)));
        Some(TraceParent { trace_id: 1, span_id: spans.len() as u64, flags: 1 })
    }
}

/// Runtime with agents, tools and a scripted model server.
pub(crate) struct AgentHarness {
    pub(crate) models: ModelServer,
    pub(crate) runtime: Runtime,
    pub(crate) caller: Caller,
    pub(crate) activity: ToolActivity,
    pub(crate) spans: Arc<SpanTree>,
    events: broadcast::Receiver<RuntimeEvent>,
}

impl AgentHarness {
    pub(crate) async fn new(agents: Vec<AgentSettings>, script: Vec<ScriptTurn>) -> Self {
        Self::with(ModelProviderKind::OpenAiCompatible, agents, script).await
    }

    pub(crate) async fn with(
        kind: ModelProviderKind,
        agents: Vec<AgentSettings>,
        script: Vec<ScriptTurn>,
    ) -> Self {
        // Spans have names only with a subscriber, which must exist before the first span.
        static COLLECTED: Once = Once::new();
        COLLECTED.call_once(|| {
            tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
        });
        let server = ModelServer::start(Script { turns: script }).await.unwrap();
        let base_url = match kind {
            ModelProviderKind::OpenAiCompatible => server.chat_url(),
            ModelProviderKind::Anthropic | ModelProviderKind::Sampling => server.messages_url(),
        };
        let pricing = Pricing { input: 1_000.0, output: 2_000.0, cache_read: None, cache_write: None };
        let priced = ModelSettings { pricing: Some(pricing), context_window: None };
        let of_each = agents.iter().map(|agent| (agent.name.to_string(), priced)).collect();
        let provider = ModelProviderSettings {
            base_url: Some(base_url),
            api_key: Some(Secret::new("sk-test")),
            models: of_each,
            ..ModelProviderSettings::new(kind)
        };
        let sampling = ModelProviderSettings::new(ModelProviderKind::Sampling);
        let named = |(name, settings)| (ModelProviderName::new(name).unwrap(), settings);
        let models = Models::new(&IndexMap::from([("p", provider), ("client", sampling)].map(named)));
        let environment = AgentEnvironment {
            clock: Box::new(|| SystemTime::UNIX_EPOCH),
            nonce: Box::new(|| NONCE.to_owned()),
        };
        let agents = AgentRegistry::with_environment(agents, models, environment).unwrap();
        let activity = ToolActivity::default();
        let spans = Arc::new(SpanTree::default());
        let runtime = Runtime::builder()
            .settings(RuntimeSettings::default())
            .provide("library", LocalProvider::new(library(&activity)).of_kind(ToolKind::Mcp))
            .provide("rest", LocalProvider::new([weather()]).of_kind(ToolKind::Rest))
            .provide("agent", agents.provider())
            .outputs(Arc::new(Database::in_memory()))
            .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
            .spans(Arc::clone(&spans) as _)
            .start()
            .await
            .unwrap();
        let caller = runtime.caller(CallerOptions::default());
        let events = runtime.events().subscribe();
        Self { models: server, runtime, caller, activity, spans, events }
    }

    /// Calls an agent with the origin of a client, and describes the result.
    pub(crate) async fn run(&self, agent: &str, arguments: Value) -> String {
        describe_result(&self.call_agent(agent, arguments, CallOrigin::Client).await)
    }

    /// Calls an agent.
    pub(crate) async fn call_agent(&self, agent: &str, arguments: Value, origin: CallOrigin) -> CallResult {
        let mut call = Call::new(format!("agent__{agent}"), arguments);
        call.context.origin = origin;
        let ended = self.caller.start(call).await;
        assert_eq!(self.models.violations(), Vec::<String>::new());
        ended
    }

    /// Returns the tool and user messages of the last request to an agent's model.
    pub(crate) fn tool_and_user_messages(&self, agent: &str) -> Vec<String> {
        let request = self.requests(agent).pop().unwrap();
        let messages = request["messages"].as_array().unwrap();
        let selected =
            messages.iter().filter(|message| message["role"] == "tool" || message["role"] == "user");
        selected.skip(1).map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the requests to an agent's model, in order.
    pub(crate) fn requests(&self, agent: &str) -> Vec<Value> {
        let requests = self.models.requests().into_iter().map(|request| request.body);
        requests.filter(|body| body["model"] == agent).collect()
    }

    /// Returns the names of the tools in the first request to an agent's model.
    pub(crate) fn offered(&self, agent: &str) -> Vec<String> {
        let tools = self.requests(agent)[0]["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Describes the events of agent sessions so far, one per line.
    pub(crate) fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.events.try_recv().ok())
            .filter_map(|event| match event {
                RuntimeEvent::Turn { call, turn, most } => Some(format!("{} turn {turn}/{most}", call.tool)),
                RuntimeEvent::Status { call, status } => Some(format!("{} status {status}", call.tool)),
                RuntimeEvent::AgentWarned { call, what } => Some(format!("{} warned {what}", call.tool)),
                RuntimeEvent::ModelFinished { call, operation, end } => {
                    let tokens = format!("{}+{}", end.usage.input, end.usage.output);
                    let error = end.error.unwrap_or("ok");
                    Some(format!("{} {operation} {} {tokens} {error}", call.tool, end.model))
                }
                _ => None,
            })
            .collect()
    }

    /// Renders the operation tree without times and ids.
    pub(crate) fn tree(&self) -> String {
        let render = self.caller.tree().snapshot().to_string();
        let lines = render.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let at = words.iter().position(|word| *word == "session");
            let id = at.and_then(|at| words.get(at + 1)).copied().unwrap_or("\0");
            let line = line.replace(id, "*");
            let parts = line.split(", ").filter(|part| !is_time(part));
            parts.collect::<Vec<_>>().join(", ")
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn is_time(part: &str) -> bool {
    part.ends_with('s') && part.starts_with(|first: char| first.is_ascii_digit()) && !part.contains(' ')
}

/// Describes a result in one line.
pub(crate) fn describe_result(ended: &CallResult) -> String {
    match &ended.result {
        Ok(output) if output.is_error() => format!("failed: {}", output.text()),
        Ok(output) => output.text().into_owned(),
        Err(error) => format!("{}: {}", error.kind().as_str(), error.text()),
    }
}

fn library(activity: &ToolActivity) -> Vec<ToolEntry> {
    let (lookup_activity, hang_activity) = (activity.clone(), activity.clone());
    vec![
        ToolEntry::from_fn("look_up", "Looks a word up.", move |asked: Value| {
            let running = lookup_activity.start();
            async move {
                let _running = running;
                Ok(format!("about {}", asked["word"].as_str().unwrap_or_default()))
            }
        })
        .with_input_schema(json!({"type": "object", "properties": {"word": {"type": "string"}}})),
        ToolEntry::from_fn("copy", "Gives much.", |asked: Value| async move {
            Ok("a line\n"
                .repeat(usize::try_from(asked["lines"].as_u64().unwrap_or_default()).unwrap_or_default()))
        })
        .with_input_schema(json!({"type": "object"})),
        ToolEntry::from_fn("hang", "Never ends.", move |_: Value| {
            let running = hang_activity.start();
            async move {
                let _running = running;
                std::future::pending::<()>().await;
                Ok(())
            }
        })
        .with_input_schema(json!({"type": "object"})),
    ]
}

fn weather() -> ToolEntry {
    ToolEntry::from_fn("weather", "The weather.", |_: Value| async { Ok(json!({"sky": "grey"})) })
        .with_input_schema(json!({"type": "object"}))
}
