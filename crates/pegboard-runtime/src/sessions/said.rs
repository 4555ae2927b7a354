//! What the arguments of a call say about where it belongs.

use std::borrow::Cow;

use pegboard_core::call::WorkspaceSource;
use serde::Serialize;
use serde_json::{Map, Value};

/// The workspace of whoever names none.
pub const DEFAULT_WORKSPACE: &str = "default";

const CONTEXT: &str = "context";
const WORKSPACE_CONTEXT: &str = "workspaceContext";
const SESSION_ID: &str = "sessionId";
const WORKSPACE_ID: &str = "workspaceId";

/// How long the id of a workspace may be, in characters.
const MAX_WORKSPACE: usize = 128;
/// How long a `workspaceContext` that is a text may be, in bytes.
const MAX_WORKSPACE_CONTEXT: usize = 64 * 1024;

/// What a caller said about its session, its workspace and its purpose.
///
/// A blank text counts as nothing said, and so does a value of the wrong type.
///
/// ```
/// use pegboard_runtime::sessions::Said;
/// use serde_json::json;
///
/// let arguments = json!({"path": "a.md", "sessionId": "old", "context": {"sessionId": "budget work"}});
/// let said = Said::of(arguments.as_object().unwrap());
/// assert_eq!(said.session, Some("budget work"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said<'a> {
    /// The session: `context.sessionId`, or else `sessionId`.
    pub session: Option<&'a str>,
    /// The workspace of `workspaceContext`.
    pub workspace_context: Option<Cow<'a, str>>,
    /// The workspace of `context`.
    pub context_workspace: Option<&'a str>,
    /// Why the call is made.
    pub purpose: Purpose<'a>,
}

/// Why a call is made, in the caller's words.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Purpose<'a> {
    /// What the session is about.
    pub session_description: Option<&'a str>,
    /// What has happened in it so far.
    pub session_memory: Option<&'a str>,
    /// Why this tool.
    pub tool_context: Option<&'a str>,
    /// What the caller is after.
    pub primary_goal: Option<&'a str>,
    /// What this call is to bring.
    pub subgoal: Option<&'a str>,
    /// Words to find it by.
    pub tags: Option<&'a Value>,
    /// Anything else.
    pub additional_context: Option<&'a Value>,
}

impl<'a> Said<'a> {
    /// What the arguments of a call say.
    pub fn of(arguments: &'a Map<String, Value>) -> Self {
        let context = arguments.get(CONTEXT).and_then(Value::as_object);
        let value = |key: &str| context.and_then(|context| context.get(key)).filter(|value| !value.is_null());
        let said = |key: &str| value(key).and_then(text);
        Self {
            session: said(SESSION_ID).or_else(|| arguments.get(SESSION_ID).and_then(text)),
            workspace_context: workspace_in(arguments),
            context_workspace: said(WORKSPACE_ID).filter(|id| is_workspace(id)),
            purpose: Purpose {
                session_description: said("sessionDescription"),
                session_memory: said("sessionMemory"),
                tool_context: said("toolContext"),
                primary_goal: said("primaryGoal"),
                subgoal: said("subgoal"),
                tags: value("tags"),
                additional_context: value("additionalContext"),
            },
        }
    }

    /// The workspace of the call, given the one that its session is bound to.
    pub fn workspace(&self, bound: Option<&str>) -> Workspace {
        let sources = [
            (WorkspaceSource::WorkspaceContext, self.workspace_context.as_deref()),
            (WorkspaceSource::Context, self.context_workspace),
            (WorkspaceSource::Session, bound),
        ];
        let said = sources.into_iter().find_map(|(source, id)| Some((source, id?)));
        let (source, id) = said.unwrap_or((WorkspaceSource::Default, DEFAULT_WORKSPACE));
        Workspace { id: id.to_owned(), source }
    }
}

/// The workspace of a call, and how it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Its id.
    pub id: String,
    /// Who said so.
    pub source: WorkspaceSource,
}

/// The names under which arguments say things to the runtime, and not to the tool: `context`, `workspaceContext` and
/// `sessionId`, unless the tool's own schema declares them.
///
/// ```
/// use pegboard_runtime::sessions::for_the_runtime;
/// use serde_json::json;
///
/// let schema = json!({"properties": {"path": {"type": "string"}, "context": {"type": "string"}}});
/// assert_eq!(for_the_runtime(&schema).collect::<Vec<_>>(), ["workspaceContext", "sessionId"]);
/// ```
pub fn for_the_runtime(schema: &Value) -> impl Iterator<Item = &'static str> {
    let is_declared =
        |name: &str| schema.get("properties").is_some_and(|declared| declared.get(name).is_some());
    [CONTEXT, WORKSPACE_CONTEXT, SESSION_ID].into_iter().filter(move |name| !is_declared(name))
}

/// The arguments without `context` and `workspaceContext`, whatever the tool declares.
pub(crate) fn without_context(arguments: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    arguments.iter().filter(|(key, _)| !matches!(key.as_str(), CONTEXT | WORKSPACE_CONTEXT))
}

/// `workspaceContext.workspaceId`, where the context is an object or the JSON text of one.
pub(super) fn workspace_in(members: &Map<String, Value>) -> Option<Cow<'_, str>> {
    let id = match members.get(WORKSPACE_CONTEXT)? {
        Value::Object(context) => Cow::Borrowed(context.get(WORKSPACE_ID).and_then(text)?),
        Value::String(json) if json.len() <= MAX_WORKSPACE_CONTEXT => {
            let context: Value = serde_json::from_str(json).ok()?;
            Cow::Owned(context.get(WORKSPACE_ID).and_then(text)?.to_owned())
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    is_workspace(&id).then_some(id)
}

fn is_workspace(id: &str) -> bool {
    id.chars().nth(MAX_WORKSPACE).is_none() && !id.chars().any(char::is_control)
}

/// The text of a value, without the space around it, if there is any.
pub(crate) fn text(value: &Value) -> Option<&str> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty())
}
