//! `subscriptions/listen`: a stream of changes to a client without a session.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use super::session::Life;
use super::{Change, Description, Peer, Server};
use crate::era::meta;
use crate::message::{Id, Request, RpcError, code};
use pegboard_json::RawJson;

/// What a client wants to hear of.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tools_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    prompts_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_subscriptions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    task_ids: Vec<String>,
}

/// How many resources one subscription may name, and how many tasks.
const MAX_RESOURCES: usize = 10_000;

/// The extension that knows tasks.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Tells the client of changes until it stops listening or the service ends.
pub(super) async fn listen(
    server: &Server,
    request: &Request,
    description: &Description,
    peer: &Peer,
) -> Result<RawJson, RpcError> {
    let asked = request.params.as_ref().and_then(|params| params.get("notifications"));
    let asked = asked.ok_or_else(|| RpcError::invalid_params("notifications must be an object"))?;
    let asked: Filter = asked.read().map_err(RpcError::invalid_params)?;
    if asked.resource_subscriptions.len().max(asked.task_ids.len()) > MAX_RESOURCES {
        let problem = format_args!("at most {MAX_RESOURCES} resources and as many tasks can be subscribed");
        return Err(RpcError::invalid_params(problem));
    }
    if !asked.task_ids.is_empty() {
        check_tasks(request)?;
    }
    let filter = asked.honoured_by(&description.capabilities);
    let changes = server.service.changes();
    let stream = Life::begin(Arc::clone(&server.service));
    server.service.watched(&stream.id, &filter.resource_subscriptions).await;
    let tag = tag(&request.id);
    let acknowledged = tag.with("notifications", &RawJson::of(&filter));
    peer.notify("notifications/subscriptions/acknowledged", acknowledged).await;
    if let Some(mut changes) = changes {
        loop {
            let news = match changes.recv().await {
                Ok(change) => vec![change],
                // Too slow for every change: everything is to be read anew.
                Err(RecvError::Lagged(_)) => {
                    let updated =
                        filter.resource_subscriptions.iter().map(|uri| Change::Resource { uri: uri.clone() });
                    [Change::Tools, Change::Prompts, Change::Resources].into_iter().chain(updated).collect()
                }
                Err(RecvError::Closed) => break,
            };
            for change in news.iter().filter(|change| filter.wants(change)) {
                let (method, params) = words(change, &tag);
                peer.notify(method, params).await;
            }
        }
    } else {
        // Nothing will ever change: the stream stays open until the client ends it.
        std::future::pending::<()>().await;
    }
    Ok(RawJson::of(&serde_json::json!({"resultType": "complete"}))
        .with("_meta", &tag.get("_meta").unwrap_or_else(RawJson::empty_object)))
}

/// Refuses a client that wants to hear of tasks and did not say that it knows them.
fn check_tasks(request: &Request) -> Result<(), RpcError> {
    let path = ["_meta", meta::CLIENT_CAPABILITIES, "extensions", TASKS];
    if request.params.as_ref().and_then(|params| params.at(&path)).is_some() {
        return Ok(());
    }
    let message = format!("The client lacks the extension '{TASKS}' that this request needs");
    let data = serde_json::json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    Err(RpcError::new(code::MISSING_CAPABILITY, message).with_data(data))
}

/// The mark of a subscription, which everything on its stream carries.
fn tag(id: &Id) -> RawJson {
    let meta = RawJson::empty_object().with(meta::SUBSCRIPTION_ID, &RawJson::of(id));
    RawJson::empty_object().with("_meta", &meta)
}

fn words(change: &Change, tag: &RawJson) -> (&'static str, RawJson) {
    match change {
        Change::Tools => ("notifications/tools/list_changed", tag.clone()),
        Change::Prompts => ("notifications/prompts/list_changed", tag.clone()),
        Change::Resources => ("notifications/resources/list_changed", tag.clone()),
        Change::Resource { uri } => ("notifications/resources/updated", tag.with("uri", &RawJson::of(uri))),
        Change::Log(line) => ("notifications/message", line.clone()),
        Change::BeenThere(params) => ("notifications/elicitation/complete", params.clone()),
        Change::Task { state, .. } => {
            let meta = tag.get("_meta").unwrap_or_else(RawJson::empty_object);
            ("notifications/tasks", state.with("_meta", &meta))
        }
    }
}

impl Filter {
    /// What of it the server can do.
    fn honoured_by(self, capabilities: &RawJson) -> Self {
        let can = |path: &[&str]| capabilities.at(path).is_some_and(|flag| flag.as_str() == "true");
        Self {
            tools_list_changed: self.tools_list_changed && can(&["tools", "listChanged"]),
            prompts_list_changed: self.prompts_list_changed && can(&["prompts", "listChanged"]),
            resources_list_changed: self.resources_list_changed && can(&["resources", "listChanged"]),
            resource_subscriptions: if can(&["resources", "subscribe"]) {
                self.resource_subscriptions
            } else {
                Vec::new()
            },
            task_ids: if capabilities.at(&["extensions", TASKS]).is_some() {
                self.task_ids
            } else {
                Vec::new()
            },
        }
    }

    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools_list_changed,
            Change::Prompts => self.prompts_list_changed,
            Change::Resources => self.resources_list_changed,
            Change::Resource { uri } => self.resource_subscriptions.contains(uri),
            Change::Log(_) | Change::BeenThere(_) => false,
            Change::Task { id, .. } => self.task_ids.contains(id),
        }
    }
}
