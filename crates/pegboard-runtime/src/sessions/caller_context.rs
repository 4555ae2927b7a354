//! The caller context in the arguments of a call: session, workspace and purpose.

use std::borrow::Cow;

use pegboard_core::call::WorkspaceSource;
use serde::Serialize;
use serde_json::{Map, Value};

/// Workspace of callers that name none.
pub const DEFAULT_WORKSPACE: &str = "default";

const CONTEXT: &str = "context";
const WORKSPACE_CONTEXT: &str = "workspaceContext";
const SESSION_ID: &str = "sessionId";
const WORKSPACE_ID: &str = "workspaceId";

/// Maximum length of a workspace id, in characters.
const MAX_WORKSPACE: usize = 128;
/// Maximum length of a `workspaceContext` given as a string, in bytes.
const MAX_WORKSPACE_CONTEXT: usize = 64 * 1024;

/// Session, workspace and purpose of a call, as given by the caller.
///
/// Blank strings and values of the wrong type count as absent.
///
/// ```
/// use pegboard_runtime::sessions::CallerContext;
/// use serde_json::json;
///
/// let arguments = json!({"path": "a.md", "sessionId": "old", "context": {"sessionId": "budget work"}});
/// let context = CallerContext::of(arguments.as_object().unwrap());
/// assert_eq!(context.session, Some("budget work"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallerContext<'a> {
    /// Session name: `context.sessionId`, or else `sessionId`.
    pub session: Option<&'a str>,
    /// Workspace id in `workspaceContext`.
    pub workspace_context: Option<Cow<'a, str>>,
    /// Workspace id in `context`.
    pub context_workspace: Option<&'a str>,
    /// Purpose of the call.
    pub purpose: CallPurpose<'a>,
}

/// Purpose of a call, in the caller's words.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallPurpose<'a> {
    /// Subject of the session.
    pub session_description: Option<&'a str>,
    /// Summary of the session so far.
    pub session_memory: Option<&'a str>,
    /// Reason for using this tool.
    pub tool_context: Option<&'a str>,
    /// Goal of the caller.
    pub primary_goal: Option<&'a str>,
    /// Goal of this call.
    pub subgoal: Option<&'a str>,
    /// Tags.
    pub tags: Option<&'a Value>,
    /// Additional information.
    pub additional_context: Option<&'a Value>,
}

impl<'a> CallerContext<'a> {
    /// Reads the context from the arguments of a call.
    pub fn of(arguments: &'a Map<String, Value>) -> Self {
        let context = arguments.get(CONTEXT).and_then(Value::as_object);
        let value = |key: &str| context.and_then(|context| context.get(key)).filter(|value| !value.is_null());
        let text_of = |key: &str| value(key).and_then(non_blank_text);
        Self {
            session: text_of(SESSION_ID).or_else(|| arguments.get(SESSION_ID).and_then(non_blank_text)),
            workspace_context: workspace_in(arguments),
            context_workspace: text_of(WORKSPACE_ID).filter(|id| is_workspace(id)),
            purpose: CallPurpose {
                session_description: text_of("sessionDescription"),
                session_memory: text_of("sessionMemory"),
                tool_context: text_of("toolContext"),
                primary_goal: text_of("primaryGoal"),
                subgoal: text_of("subgoal"),
                tags: value("tags"),
                additional_context: value("additionalContext"),
            },
        }
    }

    /// Returns the workspace of the call, given the one that its session is bound to.
    pub fn workspace(&self, bound: Option<&str>) -> Workspace {
        let sources = [
            (WorkspaceSource::WorkspaceContext, self.workspace_context.as_deref()),
            (WorkspaceSource::Context, self.context_workspace),
            (WorkspaceSource::Session, bound),
        ];
        let found = sources.into_iter().find_map(|(source, id)| Some((source, id?)));
        let (source, id) = found.unwrap_or((WorkspaceSource::Default, DEFAULT_WORKSPACE));
        Workspace { id: id.to_owned(), source }
    }
}

/// Workspace of a call, with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Workspace id.
    pub id: String,
    /// Source of the id.
    pub source: WorkspaceSource,
}

/// Returns the argument keys that address the runtime and not the tool: `context`, `workspaceContext` and
/// `sessionId`, except those declared by the tool's schema.
///
/// ```
/// use pegboard_runtime::sessions::runtime_keys;
/// use serde_json::json;
///
/// let schema = json!({"properties": {"path": {"type": "string"}, "context": {"type": "string"}}});
/// assert_eq!(runtime_keys(&schema).collect::<Vec<_>>(), ["workspaceContext", "sessionId"]);
/// ```
pub fn runtime_keys(schema: &Value) -> impl Iterator<Item = &'static str> {
    let is_declared =
        |name: &str| schema.get("properties").is_some_and(|declared| declared.get(name).is_some());
    [CONTEXT, WORKSPACE_CONTEXT, SESSION_ID].into_iter().filter(move |name| !is_declared(name))
}

/// Returns the arguments without `context` and `workspaceContext`, even if the tool declares them.
pub(crate) fn without_context(arguments: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    arguments.iter().filter(|(key, _)| !matches!(key.as_str(), CONTEXT | WORKSPACE_CONTEXT))
}

/// Returns `workspaceContext.workspaceId`, where the context is an object or a JSON string of one.
pub(super) fn workspace_in(members: &Map<String, Value>) -> Option<Cow<'_, str>> {
    let id = match members.get(WORKSPACE_CONTEXT)? {
        Value::Object(context) => Cow::Borrowed(context.get(WORKSPACE_ID).and_then(non_blank_text)?),
        Value::String(json) if json.len() <= MAX_WORKSPACE_CONTEXT => {
            let context: Value = serde_json::from_str(json).ok()?;
            Cow::Owned(context.get(WORKSPACE_ID).and_then(non_blank_text)?.to_owned())
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    is_workspace(&id).then_some(id)
}

fn is_workspace(id: &str) -> bool {
    id.chars().nth(MAX_WORKSPACE).is_none() && !id.chars().any(char::is_control)
}

/// Returns the trimmed string of a value; `None` if blank.
pub(crate) fn non_blank_text(value: &Value) -> Option<&str> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty())
}
