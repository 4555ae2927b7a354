//! Agents as tools: each is a model with a prompt and tools of its own, and its answer is its final report.
//!
//! Calling one begins a session under the call. Its tools are called through the call, so that queues, caches, caps and
//! limits hold for them, and everything ends when the call does. Agents call agents in the same way.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use indexmap::IndexMap;
use pegboard_core::call::{Call, Invoker, Origin, OwnTool, Selected, ValidCall};
use pegboard_core::client::{Client, NoClient};
use pegboard_core::duration::Ttl;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::model::{Message, Model, ModelName, ModelRequest, OutputReader};
use pegboard_core::output::Output;
use pegboard_core::provider::{Local, Offer};
use pegboard_core::schema::Schema;
use pegboard_core::settings::agent::{AgentSettings, ReportFormat};
use pegboard_json::RawJson;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::builtin::{self, Content, Desk, Report, ReportStatus, Wanted};
use crate::model::{Models, Patience};
use crate::router::{self, Destination};
use belt::{Belt, Large, Parts};
use guard::Guard;
use input::{Input, Task};
use prompt::Nonce;
use session::{End, Session, State};

mod belt;
mod guard;
mod input;
mod prompt;
mod session;

/// Agents that know each other, to be offered as tools of the server `agent`.
///
/// ```
/// use pegboard_core::id::ToolName;
/// use pegboard_core::provider::Provider;
/// use pegboard_core::settings::agent::AgentSettings;
/// use pegboard_providers::agent::Agents;
/// use pegboard_providers::model::Models;
///
/// let terse = AgentSettings {
///     models: vec!["local/small".parse()?],
///     prompt: "Answer in one sentence.".to_owned(),
///     ..AgentSettings::new(ToolName::new("terse")?)
/// };
/// let agents = Agents::new([terse], Models::default())?;
/// assert_eq!(agents.provider().offer().borrow().tools[0].name(), "terse");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Agents(Arc<Shelf>);

#[derive(Debug)]
struct Shelf {
    agents: IndexMap<ToolName, Arc<AgentSettings>>,
    models: Arc<Models>,
    surroundings: Surroundings,
    /// Tells these agents from all others.
    fingerprint: String,
}

/// What sessions of agents take from outside.
pub struct Surroundings {
    /// The time of day.
    pub clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    /// A mark for one session, by which its final report is told from everything else that its model writes. Nobody
    /// who writes what the model reads may be able to guess it.
    pub nonce: Box<dyn Fn() -> String + Send + Sync>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            clock: Box::new(SystemTime::now),
            nonce: Box::new(|| format!("{:016x}", rand::random::<u64>())),
        }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}

impl Agents {
    /// Agents that may be called, and that may call each other.
    pub fn new(
        agents: impl IntoIterator<Item = AgentSettings>,
        models: impl Into<Arc<Models>>,
    ) -> Result<Self, InvalidAgent> {
        Self::within(agents, models, Surroundings::default())
    }

    /// The same in other surroundings, as for a run that is to be repeated exactly.
    pub fn within(
        agents: impl IntoIterator<Item = AgentSettings>,
        models: impl Into<Arc<Models>>,
        surroundings: Surroundings,
    ) -> Result<Self, InvalidAgent> {
        let mut shelf = IndexMap::new();
        for agent in agents {
            let name = agent.name.clone();
            if builtin::TAKEN.contains(&name.as_str()) {
                return Err(InvalidAgent::Taken { name });
            }
            if shelf.insert(name.clone(), Arc::new(agent)).is_some() {
                return Err(InvalidAgent::Twice { name });
            }
        }
        for agent in shelf.values() {
            let named = agent.agents.iter().chain(&agent.destinations).chain(&agent.handoff);
            if let Some(missing) = named.into_iter().find(|name| !shelf.contains_key(*name)) {
                return Err(InvalidAgent::Missing { name: missing.clone(), by: agent.name.clone() });
            }
        }
        let digest = Sha256::digest(format!("{shelf:?}"));
        let fingerprint: Vec<String> = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let fingerprint = fingerprint.concat();
        Ok(Self(Arc::new(Shelf { agents: shelf, models: models.into(), surroundings, fingerprint })))
    }

    /// A provider of all of them, to be called `agent`.
    pub fn provider(&self) -> Local {
        let tools = self.0.agents.values().map(|agent| Arc::new(self.0.entry(agent, None))).collect();
        Local::offering(Offer { tools, fingerprint: self.0.fingerprint.clone(), ..Offer::default() })
    }
}

/// Why agents cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAgent {
    /// The name is the one of a tool that every agent has.
    #[error(
        "no agent can be called '{name}': a tool of that name is there already. Set toolName to another one"
    )]
    Taken {
        /// The name.
        name: ToolName,
    },
    /// Two agents have the same name.
    #[error("Duplicate sub-agent tool name '{name}' detected during preload. Set toolName of one to another")]
    Twice {
        /// The name.
        name: ToolName,
    },
    /// An agent names one that is not there.
    #[error("the agent '{by}' names the agent '{name}', which is not there")]
    Missing {
        /// The one that is not there.
        name: ToolName,
        /// The one that names it.
        by: ToolName,
    },
}

impl Shelf {
    /// An agent as a tool. One with a task of its own does that, whatever it is called with.
    fn entry(self: &Arc<Self>, agent: &Arc<AgentSettings>, task: Option<Task>) -> ToolEntry {
        let input = Input::of(agent);
        let schema = input.schema();
        let runner = Runner { shelf: Arc::clone(self), agent: Arc::clone(agent), input, task };
        let mut entry =
            ToolEntry::from_handler(agent.name.shared(), agent.description.clone(), Arc::new(runner))
                .with_input_schema(schema)
                .unmanaged()
                .judging_itself();
        if let Some(time_to_live) = agent.cache.and_then(Ttl::as_duration) {
            entry = entry.with_cache(time_to_live);
        }
        if agent.usage.is_empty() { entry } else { entry.with_instructions(agent.usage.clone()) }
    }

    /// An agent as a tool that another agent brings along.
    fn own(self: &Arc<Self>, name: &ToolName, task: Option<Task>) -> Option<OwnTool> {
        let agent = self.agents.get(name)?;
        let server = ServerName::new(builtin::SERVER).expect("it is neither empty nor long");
        let entry = Arc::new(self.entry(agent, task));
        Some(OwnTool { server, entry, fingerprint: self.fingerprint.clone() })
    }
}

/// The code behind an agent.
struct Runner {
    shelf: Arc<Shelf>,
    agent: Arc<AgentSettings>,
    input: Input,
    task: Option<Task>,
}

impl Handler for Runner {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.run(call).boxed()
    }
}

impl Runner {
    async fn run(&self, call: &ValidCall) -> Result<Output, CallError> {
        let context = call.context();
        let line = self.line(&context.agents)?;
        let task = match &self.task {
            Some(task) => task.clone(),
            None => match self.input.read(call.arguments(), context.origin) {
                Ok(task) => task,
                Err(problem) => return Ok(Output::failure(problem)),
            },
        };
        let Some(tools) = &context.tools else {
            return Ok(Output::failure("an agent needs a session to make its calls in"));
        };
        tools.diary().begin(&task.title);
        let client: Arc<dyn Client> = context.client.clone().unwrap_or_else(|| Arc::new(NoClient));
        let end = self.converse(&task, tools, &client, &line).await?;
        match (end, &self.agent.handoff) {
            (End::Handoff(handoff), _) => {
                let mut prompt = task.prompt.clone();
                if let Some(message) = &handoff.message {
                    prompt = format!("{prompt}\n\nThe agent '{}' says: {message}", self.agent.name);
                }
                self.hand_over(&handoff.agent, Task { prompt, ..task }, tools, &line).await
            }
            (End::Report(report), Some(next)) if report.status != ReportStatus::Failure => {
                let prompt = report.content.to_text();
                self.hand_over(next, Task { prompt, ..task }, tools, &line).await
            }
            (End::Report(report), _) => Ok(self.output(report, self.format(&task))),
        }
    }

    /// The agents above this one, and this one. One that is among those above would never end.
    fn line(&self, above: &[Arc<str>]) -> Result<Arc<[Arc<str>]>, CallError> {
        let path = self.agent.path.display().to_string();
        let own: Arc<str> = if path.is_empty() { self.agent.name.shared() } else { path.into() };
        if above.contains(&own) {
            let reason = format!("Recursion detected while loading sub-agent: {own}");
            return Err(CallError::NotPermitted { reason });
        }
        Ok(above.iter().cloned().chain([own]).collect())
    }

    fn format(&self, task: &Task) -> ReportFormat {
        self.agent.output.format.unwrap_or(task.format)
    }

    /// Holds the conversation with the agent's model.
    async fn converse(
        &self,
        task: &Task,
        tools: &Arc<dyn Invoker>,
        client: &Arc<dyn Client>,
        line: &Arc<[Arc<str>]>,
    ) -> Result<End, CallError> {
        let settings = &*self.agent;
        let model = self.model(&settings.models, client)?;
        let schema = settings.output.schema.clone().map(Schema::new);
        let desk = Desk::new(Wanted { format: self.format(task), schema });
        let belt = Belt::new(Parts {
            own: self.own_tools(&desk),
            selected: self.selected(tools).await?,
            agents: Arc::clone(line),
            timeout: settings.tool_timeout,
            max_output: settings.tool_response_max_bytes,
            large: self.large(client)?,
        });
        let nonce = Nonce::new((self.shelf.surroundings.nonce)());
        let request = self.request(task, desk.wanted(), &nonce);
        let window = model.facts().context_window.or(settings.context_window);
        let session = Session {
            settings,
            tools,
            client: (line.len() == 1).then_some(client),
            belt,
            desk,
            model: &*model,
            nonce,
            guard: Guard::new(window, settings.max_output_tokens),
            request,
            state: State::default(),
        };
        session.run().await
    }

    /// The first of these models that replies.
    fn model(&self, names: &[ModelName], client: &Arc<dyn Client>) -> Result<Arc<dyn Model>, CallError> {
        let AgentSettings { name, llm_timeout, max_retries, .. } = &*self.agent;
        let patience = Patience { timeout: *llm_timeout, max_retries: *max_retries, ..Patience::default() };
        let model = self.shelf.models.fallback(names, client, patience).map_err(|error| {
            CallError::Failed(ToolError::new(format_args!("the agent '{name}': {error}")))
        })?;
        Ok(Arc::new(model))
    }

    /// What becomes of answers that are too large for it.
    fn large(&self, client: &Arc<dyn Client>) -> Result<Large, CallError> {
        let AgentSettings { tool_output: reading, models, .. } = &*self.agent;
        if reading.is_enabled == Some(false) {
            return Ok(Large::Cut);
        }
        let models = if reading.models.is_empty() { models } else { &reading.models };
        Ok(Large::Stored(Arc::new(OutputReader {
            max_chunks: reading.max_chunks,
            overlap_percent: reading.overlap_percent,
            avg_line_bytes_threshold: reading.avg_line_bytes_threshold,
            ..OutputReader::new(self.model(models, client)?)
        })))
    }

    /// What the model is asked first.
    fn request(&self, task: &Task, wanted: &Wanted, nonce: &Nonce) -> ModelRequest {
        let settings = &*self.agent;
        let now = (self.shelf.surroundings.clock)();
        ModelRequest {
            system: prompt::system(settings, wanted, nonce, now),
            messages: vec![Message::user(task.prompt.as_str())],
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

    /// The tools of one session alone.
    fn own_tools(&self, desk: &Arc<Desk>) -> Vec<OwnTool> {
        let AgentSettings { agents, destinations, tools, .. } = &*self.agent;
        let is_wanted = |word: &String| is_task_status(word);
        let status = tools.iter().any(is_wanted).then(|| builtin::task_status(desk));
        let destinations: Vec<Destination> = destinations
            .iter()
            .filter_map(|name| self.shelf.agents.get(name))
            .map(|agent| Destination { name: agent.name.clone(), description: agent.description.clone() })
            .collect();
        let router = router::handoff_to(desk, &destinations);
        let agents = agents.iter().filter_map(|name| self.shelf.own(name, None));
        [builtin::final_report(desk)].into_iter().chain(status).chain(router).chain(agents).collect()
    }

    /// The tools that the agent's file gives it. A server that is down is left out: the others may be enough.
    async fn selected(&self, tools: &Arc<dyn Invoker>) -> Result<Vec<Selected>, CallError> {
        let mut selected = Vec::new();
        for word in self.agent.tools.iter().filter(|word| !is_own(word)) {
            match tools.select(word).await {
                Ok(found) => selected.extend(found),
                Err(CallError::NotFound(missing)) => {
                    return Err(CallError::Failed(ToolError::new(format_args!(
                        "the agent '{}' names '{word}' among its tools, which is not there: {missing}",
                        self.agent.name
                    ))));
                }
                Err(error) => tools.diary().warn(&format!("'{word}' is left out: {error}")),
            }
        }
        if !selected.is_empty() {
            // Only where something can be stored.
            selected.extend(tools.select("tool_output").await.into_iter().flatten());
        }
        Ok(selected)
    }

    /// Lets another agent go on.
    async fn hand_over(
        &self,
        to: &ToolName,
        task: Task,
        tools: &Arc<dyn Invoker>,
        line: &Arc<[Arc<str>]>,
    ) -> Result<Output, CallError> {
        let arguments = json!({"prompt": task.prompt, "reason": task.title});
        let tool = self.shelf.own(to, Some(task)).ok_or_else(|| CallError::unknown_tool(to.as_str()))?;
        let mut call = Call::new(tool.entry.name(), arguments);
        call.context.origin = Origin::Agent;
        call.context.agents = Arc::clone(line);
        tools.diary().status(&format!("{to} takes over"));
        tools.start_own(tool, call).await.result
    }

    /// A report as the answer of a tool.
    fn output(&self, report: Report, format: ReportFormat) -> Output {
        let Report { status, content, mut metadata } = report;
        metadata.insert("status".to_owned(), status.as_str().into());
        let since =
            (self.shelf.surroundings.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let about = json!({
            "format": format.as_str(),
            "ts": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            "metadata": metadata,
        });
        let mut result = json!({"content": [{"type": "text", "text": content.to_text()}]});
        if let Content::Json(value @ Value::Object(_)) = content {
            result["structuredContent"] = value;
        }
        if status == ReportStatus::Failure {
            result["isError"] = true.into();
        }
        result["_meta"] = json!({"pegboard/report": about});
        Output::result(RawJson::of(&result))
    }
}

/// Whether a word means a tool that is there in every session, or is made for it.
fn is_own(word: &str) -> bool {
    is_task_status(word) || [builtin::FINAL_REPORT, "agent__final_report"].contains(&word)
}

fn is_task_status(word: &str) -> bool {
    [builtin::TASK_STATUS, "agent__task_status"].contains(&word)
}
