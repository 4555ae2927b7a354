//! Agents as tools: each agent is a model with a prompt and its own tools; its result is the model's final
//! report.
//!
//! Calling an agent starts a session under that call. The session calls its tools through the call, so
//! queues, caches, output limits and timeouts apply, and everything ends with the call. Agents call other
//! agents in the same way.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use indexmap::IndexMap;
use pegboard_core::call::{Call, CallOrigin, Invoker, PrivateTool, SelectedTool, ValidCall};
use pegboard_core::client::{Client, NoClient};
use pegboard_core::duration::Ttl;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::fingerprint::sha256_hex;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::model::{ChatMessage, Model, ModelName, ModelRequest, OutputReader};
use pegboard_core::output::Output;
use pegboard_core::provider::{LocalProvider, ServerOffering};
use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::{AgentSettings, ReportFormat};
use pegboard_json::RawJson;
use serde_json::{Value, json};

use crate::builtin::{self, AgentProgress, AgentReport, ReportContent, ReportSpec, ReportStatus};
use crate::model::{ModelRetryPolicy, Models};
use crate::router::{self, HandoffDestination};
use context_window::ContextBudget;
use input::{AgentInput, AgentTask};
use prompt::Nonce;
use session::{AgentOutcome, AgentSession, AgentSessionState};
use toolset::{LargeOutputPolicy, Toolset, ToolsetOptions};

mod context_window;
mod input;
mod prompt;
mod session;
mod toolset;

/// Set of agents that can call each other, served as tools of the server `agent`.
///
/// ```
/// use pegboard_core::id::ToolName;
/// use pegboard_core::provider::Provider;
/// use pegboard_core::settings::agent::AgentSettings;
/// use pegboard_providers::agent::AgentRegistry;
/// use pegboard_providers::model::Models;
///
/// let terse = AgentSettings {
///     models: vec!["local/small".parse()?],
///     prompt: "Answer in one sentence.".to_owned(),
///     ..AgentSettings::new(ToolName::new("terse")?)
/// };
/// let agents = AgentRegistry::new([terse], Models::default())?;
/// assert_eq!(agents.provider().offering().borrow().tools[0].name(), "terse");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AgentRegistry(Arc<AgentRegistryInner>);

#[derive(Debug)]
struct AgentRegistryInner {
    agents: IndexMap<ToolName, Arc<AgentSettings>>,
    models: Arc<Models>,
    environment: AgentEnvironment,
    /// Identifies this set of agents; changes with any of their settings.
    fingerprint: String,
}

/// Clock and nonce source of agent sessions.
pub struct AgentEnvironment {
    /// Current time.
    pub clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    /// Generates the nonce of a session, which marks its final report in the model's text. It must be
    /// unguessable for the authors of anything the model reads.
    pub nonce: Box<dyn Fn() -> String + Send + Sync>,
}

impl Default for AgentEnvironment {
    fn default() -> Self {
        Self {
            clock: Box::new(SystemTime::now),
            nonce: Box::new(|| format!("{:016x}", rand::random::<u64>())),
        }
    }
}

impl fmt::Debug for AgentEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentEnvironment")
    }
}

impl AgentRegistry {
    /// Creates a registry of agents that can be called and can call each other.
    pub fn new(
        agents: impl IntoIterator<Item = AgentSettings>,
        models: impl Into<Arc<Models>>,
    ) -> Result<Self, InvalidAgent> {
        Self::with_environment(agents, models, AgentEnvironment::default())
    }

    /// Like [`new`](Self::new) with a custom environment, such as for reproducible runs.
    pub fn with_environment(
        agents: impl IntoIterator<Item = AgentSettings>,
        models: impl Into<Arc<Models>>,
        environment: AgentEnvironment,
    ) -> Result<Self, InvalidAgent> {
        let mut registry = IndexMap::new();
        for agent in agents {
            let name = agent.name.clone();
            if builtin::RESERVED_NAMES.contains(&name.as_str()) {
                return Err(InvalidAgent::ReservedName { name });
            }
            if registry.insert(name.clone(), Arc::new(agent)).is_some() {
                return Err(InvalidAgent::DuplicateName { name });
            }
        }
        for agent in registry.values() {
            let named = agent.agents.iter().chain(&agent.destinations).chain(&agent.handoff);
            if let Some(missing) = named.into_iter().find(|name| !registry.contains_key(*name)) {
                return Err(InvalidAgent::UnknownAgent { name: missing.clone(), by: agent.name.clone() });
            }
        }
        let fingerprint = sha256_hex(format!("{registry:?}"));
        Ok(Self(Arc::new(AgentRegistryInner {
            agents: registry,
            models: models.into(),
            environment,
            fingerprint,
        })))
    }

    /// Returns a provider of all agents, to be registered as `agent`.
    pub fn provider(&self) -> LocalProvider {
        let tools = self.0.agents.values().map(|agent| Arc::new(self.0.entry(agent, None))).collect();
        LocalProvider::from_offering(ServerOffering {
            tools,
            fingerprint: self.0.fingerprint.clone(),
            ..ServerOffering::default()
        })
    }
}

/// An invalid set of agents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAgent {
    /// The name is reserved for a built-in tool.
    #[error("agent name '{name}' is reserved for a built-in tool: set toolName to another name")]
    ReservedName {
        /// The name.
        name: ToolName,
    },
    /// Two agents share a name.
    #[error("Duplicate sub-agent tool name '{name}' detected during preload. Set toolName of one to another")]
    DuplicateName {
        /// The name.
        name: ToolName,
    },
    /// An agent refers to an unknown agent.
    #[error("agent '{by}' refers to an unknown agent '{name}'")]
    UnknownAgent {
        /// The unknown agent.
        name: ToolName,
        /// The agent that refers to it.
        by: ToolName,
    },
}

impl AgentRegistryInner {
    /// Creates the tool for an agent. With a `task`, the tool runs that task and ignores its arguments.
    fn entry(self: &Arc<Self>, agent: &Arc<AgentSettings>, task: Option<AgentTask>) -> ToolEntry {
        let input = AgentInput::of(agent);
        let schema = input.schema();
        let runner = AgentRunner { registry: Arc::clone(self), agent: Arc::clone(agent), input, task };
        let mut entry =
            ToolEntry::from_handler(agent.name.shared(), agent.description.clone(), Arc::new(runner))
                .with_input_schema(schema)
                .unmanaged()
                .validating_own_arguments();
        if let Some(time_to_live) = agent.cache.and_then(Ttl::as_duration) {
            entry = entry.with_cache(time_to_live);
        }
        if agent.usage.is_empty() { entry } else { entry.with_instructions(agent.usage.clone()) }
    }

    /// Creates the tool for an agent that another agent brings along.
    fn private_tool(self: &Arc<Self>, name: &ToolName, task: Option<AgentTask>) -> Option<PrivateTool> {
        let agent = self.agents.get(name)?;
        let server = ServerName::new(builtin::SERVER).expect("it is neither empty nor long");
        let entry = Arc::new(self.entry(agent, task));
        Some(PrivateTool { server, entry, fingerprint: self.fingerprint.clone() })
    }
}

/// Handler of an agent's tool.
struct AgentRunner {
    registry: Arc<AgentRegistryInner>,
    agent: Arc<AgentSettings>,
    input: AgentInput,
    task: Option<AgentTask>,
}

impl Handler for AgentRunner {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.run(call).boxed()
    }
}

impl AgentRunner {
    async fn run(&self, call: &ValidCall) -> Result<Output, CallError> {
        let context = call.context();
        let call_chain = self.call_chain(&context.agents)?;
        let task = match &self.task {
            Some(task) => task.clone(),
            None => match self.input.read(call.arguments(), context.origin) {
                Ok(task) => task,
                Err(problem) => return Ok(Output::failure(problem)),
            },
        };
        let Some(tools) = &context.tools else {
            return Ok(Output::failure("agents can only be called within a session"));
        };
        tools.recorder().begin(&task.title);
        let client: Arc<dyn Client> = context.client.clone().unwrap_or_else(|| Arc::new(NoClient));
        let end = self.run_session(&task, tools, &client, &call_chain).await?;
        match (end, &self.agent.handoff) {
            (AgentOutcome::Handoff(handoff), _) => {
                let mut prompt = task.prompt.clone();
                if let Some(message) = &handoff.message {
                    prompt = format!("{prompt}\n\nThe agent '{}' says: {message}", self.agent.name);
                }
                self.hand_off_to(&handoff.agent, AgentTask { prompt, ..task }, tools, &call_chain).await
            }
            (AgentOutcome::Report(report), Some(next)) if report.status != ReportStatus::Failure => {
                let prompt = report.content.to_text();
                self.hand_off_to(next, AgentTask { prompt, ..task }, tools, &call_chain).await
            }
            (AgentOutcome::Report(report), _) => Ok(self.report_output(report, self.report_format(&task))),
        }
    }

    /// Returns the chain of calling agents with this one appended. Fails on recursion.
    fn call_chain(&self, above: &[Arc<str>]) -> Result<Arc<[Arc<str>]>, CallError> {
        let path = self.agent.path.display().to_string();
        let own: Arc<str> = if path.is_empty() { self.agent.name.shared() } else { path.into() };
        if above.contains(&own) {
            let reason = format!("Recursion detected while loading sub-agent: {own}");
            return Err(CallError::NotPermitted { reason });
        }
        Ok(above.iter().cloned().chain([own]).collect())
    }

    fn report_format(&self, task: &AgentTask) -> ReportFormat {
        self.agent.output.format.unwrap_or(task.format)
    }

    /// Runs the session until it ends.
    async fn run_session(
        &self,
        task: &AgentTask,
        tools: &Arc<dyn Invoker>,
        client: &Arc<dyn Client>,
        call_chain: &Arc<[Arc<str>]>,
    ) -> Result<AgentOutcome, CallError> {
        let settings = &*self.agent;
        let model = self.model(&settings.models, client)?;
        let schema = settings.output.schema.clone().map(Schema::new);
        let progress = AgentProgress::new(ReportSpec { format: self.report_format(task), schema });
        let toolset = Toolset::new(ToolsetOptions {
            private_tools: self.session_tools(&progress),
            selected: self.select_tools(tools).await?,
            agents: Arc::clone(call_chain),
            timeout: settings.tool_timeout,
            max_output: settings.tool_response_max_bytes,
            large_outputs: self.large_output_policy(client)?,
        });
        let nonce = Nonce::new((self.registry.environment.nonce)());
        let request = self.initial_request(task, progress.report_spec(), &nonce);
        let window = model.info().context_window.or(settings.context_window);
        let session = AgentSession {
            settings,
            tools,
            client: (call_chain.len() == 1).then_some(client),
            toolset,
            progress,
            model: &*model,
            nonce,
            context_window: ContextBudget::new(window, settings.max_output_tokens),
            request,
            state: AgentSessionState::default(),
        };
        session.run().await
    }

    /// Creates a model that falls back through these names.
    fn model(&self, names: &[ModelName], client: &Arc<dyn Client>) -> Result<Arc<dyn Model>, CallError> {
        let AgentSettings { name, llm_timeout, max_retries, .. } = &*self.agent;
        let retry_policy = ModelRetryPolicy {
            timeout: *llm_timeout,
            max_retries: *max_retries,
            ..ModelRetryPolicy::default()
        };
        let model =
            self.registry.models.fallback(names, client, retry_policy).map_err(|error| {
                CallError::Failed(ToolError::new(format_args!("agent '{name}': {error}")))
            })?;
        Ok(Arc::new(model))
    }

    /// Returns the policy for tool outputs that exceed the size limit.
    fn large_output_policy(&self, client: &Arc<dyn Client>) -> Result<LargeOutputPolicy, CallError> {
        let AgentSettings { tool_output: reading, models, .. } = &*self.agent;
        if reading.is_enabled == Some(false) {
            return Ok(LargeOutputPolicy::Truncate);
        }
        let models = if reading.models.is_empty() { models } else { &reading.models };
        Ok(LargeOutputPolicy::Store(Arc::new(OutputReader {
            max_chunks: reading.max_chunks,
            overlap_percent: reading.overlap_percent,
            avg_line_bytes_threshold: reading.avg_line_bytes_threshold,
            ..OutputReader::new(self.model(models, client)?)
        })))
    }

    /// Builds the first request to the model.
    fn initial_request(&self, task: &AgentTask, report_spec: &ReportSpec, nonce: &Nonce) -> ModelRequest {
        let settings = &*self.agent;
        let now = (self.registry.environment.clock)();
        ModelRequest {
            system: prompt::system(settings, report_spec, nonce, now),
            messages: vec![ChatMessage::user(task.prompt.as_str())],
            delivery: settings.delivery,
            max_output_tokens: Some(settings.max_output_tokens),
            temperature: settings.temperature,
            top_p: settings.top_p,
            top_k: settings.top_k,
            reasoning: settings.reasoning,
            caching: settings.caching,
            ..ModelRequest::default()
        }
    }

    /// Creates the tools that exist only in this session.
    fn session_tools(&self, progress: &Arc<AgentProgress>) -> Vec<PrivateTool> {
        let AgentSettings { agents, destinations, tools, .. } = &*self.agent;
        let is_wanted = |word: &String| builtin::is_task_status(word);
        let status = tools.iter().any(is_wanted).then(|| builtin::task_status(progress));
        let destinations: Vec<HandoffDestination> = destinations
            .iter()
            .filter_map(|name| self.registry.agents.get(name))
            .map(|agent| HandoffDestination {
                name: agent.name.clone(),
                description: agent.description.clone(),
            })
            .collect();
        let router = router::handoff_to(progress, &destinations);
        let agents = agents.iter().filter_map(|name| self.registry.private_tool(name, None));
        [builtin::final_report(progress)].into_iter().chain(status).chain(router).chain(agents).collect()
    }

    /// Resolves the tools of the agent's file. Unavailable servers are skipped with a warning.
    async fn select_tools(&self, tools: &Arc<dyn Invoker>) -> Result<Vec<SelectedTool>, CallError> {
        let mut selected = Vec::new();
        for word in self.agent.tools.iter().filter(|word| !is_builtin(word)) {
            match tools.select(word).await {
                Ok(found) => selected.extend(found),
                Err(CallError::NotFound(missing)) => {
                    return Err(CallError::Failed(ToolError::new(format_args!(
                        "agent '{}' lists an unknown tool '{word}': {missing}",
                        self.agent.name
                    ))));
                }
                Err(error) => tools.recorder().warn(&format!("skipped '{word}': {error}")),
            }
        }
        if !selected.is_empty() {
            // Offered only if outputs can be stored.
            selected.extend(tools.select("tool_output").await.into_iter().flatten());
        }
        Ok(selected)
    }

    /// Hands the task over to another agent and returns its result.
    async fn hand_off_to(
        &self,
        to: &ToolName,
        task: AgentTask,
        tools: &Arc<dyn Invoker>,
        call_chain: &Arc<[Arc<str>]>,
    ) -> Result<Output, CallError> {
        let arguments = json!({"prompt": task.prompt, "reason": task.title});
        let tool =
            self.registry.private_tool(to, Some(task)).ok_or_else(|| CallError::unknown_tool(to.as_str()))?;
        let mut call = Call::new(tool.entry.name(), arguments);
        call.context.origin = CallOrigin::Agent;
        call.context.agents = Arc::clone(call_chain);
        tools.recorder().status(&format!("{to} takes over"));
        tools.start_private(tool, call).await.result
    }

    /// Converts a report to the output of a tool.
    fn report_output(&self, report: AgentReport, format: ReportFormat) -> Output {
        let AgentReport { status, content, mut metadata } = report;
        metadata.insert("status".to_owned(), status.as_str().into());
        let since =
            (self.registry.environment.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let about = json!({
            "format": format.as_str(),
            "ts": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            "metadata": metadata,
        });
        let mut result = json!({"content": [{"type": "text", "text": content.to_text()}]});
        if let ReportContent::Json(value @ Value::Object(_)) = content {
            result["structuredContent"] = value;
        }
        if status == ReportStatus::Failure {
            result["isError"] = true.into();
        }
        result["_meta"] = json!({"pegboard/report": about});
        Output::result(RawJson::of(&result))
    }
}

/// Returns `true` if `word` names a built-in tool.
fn is_builtin(word: &str) -> bool {
    builtin::is_task_status(word) || [builtin::FINAL_REPORT, "agent__final_report"].contains(&word)
}
