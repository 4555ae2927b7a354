//! `subscriptions/listen`: a stream of changes for a client without a session.

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};

use super::session::SessionGuard;
use super::{ClientSessionId, Peer, ServiceChange, ServiceDescription, ServiceServer};
use crate::era::meta;
use crate::message::{Id, Request, RpcError, code};
use pegboard_json::RawJson;

/// The notifications that a client subscribes to.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SubscriptionFilter {
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

/// Maximum number of resources, and of tasks, per subscription.
const MAX_RESOURCES: usize = 10_000;

/// Name of the tasks extension.
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Notifies the client of changes until it unsubscribes or closes its input, or the service ends.
pub(super) async fn listen(
    server: &ServiceServer,
    request: &Request,
    description: &ServiceDescription,
    peer: &Peer,
) -> Result<RawJson, RpcError> {
    let requested = request.params.as_ref().and_then(|params| params.get("notifications"));
    let requested = requested.ok_or_else(|| RpcError::invalid_params("notifications must be an object"))?;
    let requested: SubscriptionFilter = requested.read().map_err(RpcError::invalid_params)?;
    if requested.resource_subscriptions.len().max(requested.task_ids.len()) > MAX_RESOURCES {
        let problem = format_args!("at most {MAX_RESOURCES} resources and as many tasks can be subscribed");
        return Err(RpcError::invalid_params(problem));
    }
    if !requested.task_ids.is_empty() {
        require_tasks_extension(request)?;
    }
    let filter = requested.supported_by(&description.capabilities);
    let changes = server.service.changes();
    let stream = SessionGuard::new(ClientSessionId::random(), server);
    server.service.on_resources_watched(&stream.id, &filter.resource_subscriptions).await;
    let tag = subscription_meta(&request.id);
    let acknowledged = tag.with("notifications", &RawJson::of(&filter));
    peer.notify("notifications/subscriptions/acknowledged", acknowledged).await;
    tokio::select! {
        () = forward_changes(changes, &filter, &tag, peer) => {}
        // Otherwise the subscription would keep a server over stdio from ending with its client.
        () = peer.input_ended() => {}
    }
    Ok(RawJson::of(&serde_json::json!({"resultType": "complete"}))
        .with("_meta", &tag.get("_meta").unwrap_or_else(RawJson::empty_object)))
}

/// Notifies the client of changes until the service ends.
async fn forward_changes(
    changes: Option<broadcast::Receiver<ServiceChange>>,
    filter: &SubscriptionFilter,
    tag: &RawJson,
    peer: &Peer,
) {
    let Some(mut changes) = changes else {
        // Nothing will ever change: the stream stays open until the client closes it.
        return std::future::pending().await;
    };
    loop {
        let changes_seen = match changes.recv().await {
            Ok(change) => vec![change],
            // The receiver lagged behind: the client must reload everything.
            Err(RecvError::Lagged(_)) => {
                let updated = filter
                    .resource_subscriptions
                    .iter()
                    .map(|uri| ServiceChange::Resource { uri: uri.clone(), params: None });
                [ServiceChange::Tools, ServiceChange::Prompts, ServiceChange::Resources]
                    .into_iter()
                    .chain(updated)
                    .collect()
            }
            Err(RecvError::Closed) => return,
        };
        for change in changes_seen.iter().filter(|change| filter.matches(change)) {
            let (method, params) = change_notification(change, tag);
            peer.notify(method, params).await;
        }
    }
}

/// Rejects a task subscription of a client without the tasks extension.
fn require_tasks_extension(request: &Request) -> Result<(), RpcError> {
    let path = ["_meta", meta::CLIENT_CAPABILITIES, "extensions", TASKS_EXTENSION];
    if request.params.as_ref().and_then(|params| params.at(&path)).is_some() {
        return Ok(());
    }
    let message = format!("The client lacks the extension '{TASKS_EXTENSION}' that this request needs");
    let data = serde_json::json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}});
    Err(RpcError::new(code::MISSING_CAPABILITY, message).with_data(data))
}

/// Returns the `_meta` of a subscription, which every message on its stream carries.
fn subscription_meta(id: &Id) -> RawJson {
    let meta = RawJson::empty_object().with(meta::SUBSCRIPTION_ID, &RawJson::of(id));
    RawJson::empty_object().with("_meta", &meta)
}

fn change_notification<'c>(change: &'c ServiceChange, tag: &RawJson) -> (&'c str, RawJson) {
    match change {
        ServiceChange::Tools => ("notifications/tools/list_changed", tag.clone()),
        ServiceChange::Prompts => ("notifications/prompts/list_changed", tag.clone()),
        ServiceChange::Resources => ("notifications/resources/list_changed", tag.clone()),
        ServiceChange::Resource { uri, params } => {
            let params = params.clone().unwrap_or_else(RawJson::empty_object);
            ("notifications/resources/updated", with_tag(&params, tag).with("uri", &RawJson::of(uri)))
        }
        ServiceChange::Log(line) => ("notifications/message", line.clone()),
        ServiceChange::ElicitationComplete(params) => ("notifications/elicitation/complete", params.clone()),
        ServiceChange::Custom { method, params } => {
            (&**method, params.clone().unwrap_or_else(RawJson::empty_object))
        }
        ServiceChange::Task { state, .. } => ("notifications/tasks", with_tag(state, tag)),
    }
}

/// Adds the `_meta` of a subscription to the parameters of a notification.
fn with_tag(params: &RawJson, tag: &RawJson) -> RawJson {
    let id = tag.at(&["_meta", meta::SUBSCRIPTION_ID]);
    let own = params.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let tagged = id.iter().fold(own, |own, id| own.with(meta::SUBSCRIPTION_ID, id));
    params.with("_meta", &tagged)
}

impl SubscriptionFilter {
    /// Restricts the filter to what the server supports.
    fn supported_by(self, capabilities: &RawJson) -> Self {
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
            task_ids: if capabilities.at(&["extensions", TASKS_EXTENSION]).is_some() {
                self.task_ids
            } else {
                Vec::new()
            },
        }
    }

    fn matches(&self, change: &ServiceChange) -> bool {
        match change {
            ServiceChange::Tools => self.tools_list_changed,
            ServiceChange::Prompts => self.prompts_list_changed,
            ServiceChange::Resources => self.resources_list_changed,
            ServiceChange::Resource { uri, .. } => self.resource_subscriptions.contains(uri),
            ServiceChange::Log(_) | ServiceChange::ElicitationComplete(_) | ServiceChange::Custom { .. } => {
                false
            }
            ServiceChange::Task { id, .. } => self.task_ids.contains(id),
        }
    }
}
