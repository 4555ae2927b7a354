//! Prompts, resources, completions and resource subscriptions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use futures_util::stream::{self, StreamExt};
use pegboard_core::call::{CallContext, CallResult};
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice};
use pegboard_core::provider::{ProviderMethod, ProviderRequest, ProviderUpdate};
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::Snapshot;
use pegboard_runtime::requests::{ServerId, ServerUpdate};
use pegboard_wire::era::{Era, LogLevel, Revision};
use pegboard_wire::server::{ClientSessionId, ServiceChange, ServiceReply};
use pegboard_wire::{RpcError, code};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time;

use crate::client_request::ClientRequest;
use crate::profile::ActiveProfile;
use crate::resource_index::{ItemLocation, ResourceIndex, ResourceLookup, VIEW_SCHEME};
use crate::result;
use crate::server_subscribers::{ServerSubscribers, SubscribedResource};

/// Maximum number of subscriptions of one client that are begun concurrently.
const MAX_CONCURRENT_SUBSCRIPTIONS: usize = 16;

/// Maximum wait for servers to confirm subscriptions before the client gets its acknowledgement.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A method that is routed to the server of a prompt or resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceMethod {
    GetPrompt,
    ReadResource,
    Complete,
    Subscribe,
    Unsubscribe,
}

impl ResourceMethod {
    pub(crate) fn from_method(method: &str) -> Option<Self> {
        Some(match method {
            "prompts/get" => Self::GetPrompt,
            "resources/read" => Self::ReadResource,
            "completion/complete" => Self::Complete,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            _ => return None,
        })
    }

    fn upstream(self) -> ProviderMethod {
        match self {
            Self::GetPrompt => ProviderMethod::GetPrompt,
            Self::ReadResource => ProviderMethod::ReadResource,
            Self::Complete => ProviderMethod::Complete,
            Self::Subscribe => ProviderMethod::Subscribe,
            Self::Unsubscribe => ProviderMethod::Unsubscribe,
        }
    }

    /// Returns `true` if the request names a resource.
    fn names_resource(self) -> bool {
        match self {
            Self::ReadResource | Self::Subscribe | Self::Unsubscribe => true,
            Self::GetPrompt | Self::Complete => false,
        }
    }

    /// Returns the server of the requested item, with the parameters rewritten for it.
    fn route(
        self,
        (index, snapshot): &(Arc<ResourceIndex>, Arc<Snapshot>),
        params: &RawJson,
        revision: Revision,
    ) -> Result<(ItemLocation, RawJson), RpcError> {
        let renamed = |found: ItemLocation, key: &str| {
            let params = params.with(key, &RawJson::of(&found.upstream_name));
            (found, params)
        };
        match self {
            Self::GetPrompt => {
                let name = string_param(params, "name")?;
                let found = index.find_prompt(snapshot, &name).ok_or_else(|| {
                    RpcError::invalid_params(format_args!(
                        "unknown prompt '{name}': prompts/list returns the available names"
                    ))
                })?;
                Ok(renamed(found, "name"))
            }
            Self::ReadResource | Self::Subscribe | Self::Unsubscribe => {
                let uri = string_param(params, "uri")?;
                match index.find_resource(&uri) {
                    ResourceLookup::Found(found) => Ok(renamed(found, "uri")),
                    ResourceLookup::Ambiguous(uris) => Err(ambiguous(&uri, &uris, revision)),
                    ResourceLookup::Missing => Err(not_found(&uri, revision)),
                }
            }
            Self::Complete => {
                let reference = params.get("ref").unwrap_or_else(RawJson::empty_object);
                let (key, found) = if string_param(&reference, "type")? == "ref/prompt" {
                    ("name", index.find_prompt(snapshot, &string_param(&reference, "name")?))
                } else {
                    let uri = string_param(&reference, "uri")?;
                    let resource = || match index.find_resource(&uri) {
                        ResourceLookup::Found(found) => Some(found),
                        ResourceLookup::Ambiguous(_) | ResourceLookup::Missing => None,
                    };
                    ("uri", index.find_template(&uri).or_else(resource))
                };
                let found = found.ok_or_else(|| {
                    RpcError::invalid_params("ref does not match a listed prompt or resource")
                })?;
                let reference = reference.with(key, &RawJson::of(&found.upstream_name));
                Ok((found, params.with("ref", &reference)))
            }
        }
    }
}

/// A client request for a prompt, resource, completion or subscription.
pub(crate) struct ResourceRequest {
    pub(crate) method: ResourceMethod,
    pub(crate) session: Option<ClientSessionId>,
    pub(crate) params: RawJson,
    pub(crate) revision: Revision,
}

/// Serves the prompts and resources of one profile.
pub(crate) struct ResourceService {
    profile: Arc<ActiveProfile>,
    subscribers: Arc<ServerSubscribers>,
}

impl ResourceService {
    pub(crate) fn new(profile: Arc<ActiveProfile>, subscribers: Arc<ServerSubscribers>) -> Self {
        Self { profile, subscribers }
    }

    fn index(&self) -> Arc<ResourceIndex> {
        self.snapshot().0
    }

    /// Returns the index with the catalogue that it was built from.
    fn snapshot(&self) -> (Arc<ResourceIndex>, Arc<Snapshot>) {
        let snapshot = self.profile.runtime.catalogue();
        (self.profile.view().resource_index(&snapshot), snapshot)
    }

    /// Forwards a request to the server that has the item.
    pub(crate) async fn handle(
        &self,
        request: ResourceRequest,
        client: ClientRequest,
    ) -> Result<ServiceReply, RpcError> {
        let ResourceRequest { method, session, params, revision } = request;
        let (found, params) = method.route(&self.snapshot(), &params, revision)?;
        if let (ResourceMethod::Unsubscribe, Some(session)) = (method, &session)
            && !self.subscribers.unsubscribe(&found.subscribed(Era::Session), session)
        {
            // Other sessions are still subscribed.
            return Ok(ServiceReply::Result(RawJson::empty_object()));
        }
        let subscription = self.subscription(method, &found, session.as_ref());
        let request = ProviderRequest { method: method.upstream(), params };
        let reply = client.request(&found.server, request, into_rpc_result).await;
        let reply = reply.map_err(|error| with_revision_code(error, method, revision))?;
        subscription.into_iter().for_each(NewSubscription::keep);
        Ok(reply)
    }

    /// Returns the server of the view that a client reads; `None` if it reads another resource.
    pub(crate) fn server_of_view(&self, params: &RawJson) -> Option<ServerId> {
        let uri = params.get("uri")?;
        let uri = uri.text().filter(|uri| uri.starts_with(VIEW_SCHEME))?;
        match self.index().find_resource(&uri) {
            ResourceLookup::Found(found) => Some(found.server),
            ResourceLookup::Ambiguous(_) | ResourceLookup::Missing => None,
        }
    }

    /// Records a session as a subscriber, if it is about to become one.
    fn subscription(
        &self,
        method: ResourceMethod,
        found: &ItemLocation,
        session: Option<&ClientSessionId>,
    ) -> Option<NewSubscription<'_>> {
        let session = session.filter(|_| method == ResourceMethod::Subscribe)?;
        Some(NewSubscription::record(&self.subscribers, found.subscribed(Era::Session), session))
    }

    /// Subscribes to resources at their servers, for as long as the stream is open.
    pub(crate) async fn subscribe_all(self: Arc<Self>, stream: ClientSessionId, resources: Vec<String>) {
        let caller = self.profile.anonymous_caller();
        let subscribing = stream::iter(&resources).for_each_concurrent(MAX_CONCURRENT_SUBSCRIPTIONS, |uri| {
            let found = self.index().find_resource(uri);
            let (caller, subscribers, stream) = (&caller, &self.subscribers, &stream);
            async move {
                let ResourceLookup::Found(found) = found else { return };
                let subscription =
                    NewSubscription::record(subscribers, found.subscribed(Era::Stateless), stream);
                let params = RawJson::empty_object().with("uri", &RawJson::of(&found.upstream_name));
                let request = ProviderRequest { method: ProviderMethod::Subscribe, params };
                // A server that refuses sends no updates.
                if caller.request(&found.server, request, CallContext::default()).await.result.is_ok() {
                    subscription.keep();
                }
            }
        });
        // A hanging server must not delay the acknowledgement.
        let _ = time::timeout(WATCH_TIMEOUT, subscribing).await;
    }

    /// Sets the log level of a session. A server gets the most verbose level of all sessions that can see it; each
    /// session gets the messages of its own level.
    pub(crate) fn set_log_level(&self, session: &ClientSessionId, level: LogLevel) {
        self.subscribers.set_log_level(session, &self.profile, level);
        self.send_log_levels();
    }

    /// Sets the log levels of the servers that the sessions of this profile can see. Servers that are not running
    /// get theirs at startup.
    fn send_log_levels(&self) {
        let snapshot = self.profile.runtime.catalogue();
        let caller = self.profile.anonymous_caller();
        for (listing, _) in snapshot.listings() {
            if listing.offer.features.logging && self.profile.has_toolbox(&listing.toolbox) {
                let server = ServerId { toolbox: listing.toolbox.clone(), server: listing.server.clone() };
                let level = self.subscribers.log_level(&listing.toolbox);
                let params = RawJson::empty_object().with("level", &RawJson::of(&level));
                let request = ProviderRequest { method: ProviderMethod::SetLogLevel, params };
                // Fire and forget; the request has its own timeout.
                tokio::spawn(caller.request(&server, request, CallContext::default()));
            }
        }
    }

    /// Removes the subscriptions and the log level of a session, and unsubscribes from resources without other
    /// subscribers.
    pub(crate) fn end_session(&self, session: &ClientSessionId) {
        for SubscribedResource { server, uri, era } in self.subscribers.unsubscribe_session(session) {
            let params = RawJson::empty_object().with("uri", &RawJson::of(&uri));
            let request = ProviderRequest { method: ProviderMethod::Unsubscribe, params };
            // Fire and forget; the request has its own timeout.
            tokio::spawn(self.profile.anonymous_caller().request(&server, request, context_of(era)));
        }
        if self.subscribers.remove_log_level(session) {
            self.send_log_levels();
        }
    }

    /// Forwards changes of prompts, resources and logs to clients. Runs until the runtime is gone.
    pub(crate) async fn forward_changes(self: Arc<Self>, changes: broadcast::Sender<ServiceChange>) {
        let mut catalogues = self.profile.runtime.catalogue_changes();
        let mut updates = self.profile.runtime.updates();
        let mut index = self.index();
        loop {
            // Without receivers the notifications are dropped.
            tokio::select! {
                catalogue = catalogues.changed() => {
                    if catalogue.is_err() {
                        return;
                    }
                    let now = self.index();
                    let (same_prompts, same_resources) = now.same_listings(&index);
                    index = now;
                    if !same_prompts {
                        let _ = changes.send(ServiceChange::Prompts);
                    }
                    if !same_resources {
                        let _ = changes.send(ServiceChange::Resources);
                    }
                }
                update = updates.recv() => match update {
                    Ok(ServerUpdate { from, update: ProviderUpdate::Resource(params) }) if self.profile.has_toolbox(&from.toolbox) => {
                        let upstream_uri = params.get("uri").and_then(|uri| uri.read::<String>().ok());
                        if let Some(upstream_uri) = upstream_uri {
                            for uri in self.updated_uris(&index, &from, &upstream_uri) {
                                let params = Some(params.clone());
                                let _ = changes.send(ServiceChange::Resource { uri, params });
                            }
                        }
                    }
                    Ok(ServerUpdate { from, update: ProviderUpdate::Log(line) }) if self.profile.has_toolbox(&from.toolbox) => {
                        let _ = changes.send(ServiceChange::Log(line));
                    }
                    Ok(ServerUpdate { from, update: ProviderUpdate::Custom { method, params } }) if self.profile.has_toolbox(&from.toolbox) => {
                        let _ = changes.send(ServiceChange::Custom { method, params });
                    }
                    Ok(ServerUpdate { from, update: ProviderUpdate::ElicitationComplete(params) }) if self.profile.has_toolbox(&from.toolbox) => {
                        let _ = changes.send(ServiceChange::ElicitationComplete(params));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }
}

impl ResourceService {
    /// Returns the URIs under which sessions may have subscribed to a resource. A plain URI stays subscribed when
    /// another server comes to have it, too.
    fn updated_uris(
        &self,
        index: &ResourceIndex,
        server: &ServerId,
        uri: &str,
    ) -> impl Iterator<Item = String> + use<> {
        let public = index.public_uri(server, uri);
        let both = index.both_uris(server, uri);
        let is_subscribed = self.subscribers.is_subscribed(server, uri);
        both.into_iter().filter(move |uri| is_subscribed || *uri == public)
    }
}

/// Returns the context of a request on behalf of clients of an era that are gone, or wait for no answer.
pub(crate) fn context_of(era: Era) -> CallContext {
    let mut context = CallContext::default();
    context.client = match era {
        Era::Session => Some(Arc::new(SilentSession)),
        Era::Stateless => None,
    };
    context
}

/// A client with a session that is neither told nor asked anything.
struct SilentSession;

impl Client for SilentSession {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, _requests: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        ready(Err(AskError::Gone)).boxed()
    }

    fn has_session(&self) -> bool {
        true
    }
}

fn not_found(uri: &str, revision: Revision) -> RpcError {
    let code = if revision.is_stateless() { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
    RpcError::new(code, "Resource not found").with_data(json!({"uri": uri}))
}

/// Several servers may have the resource, and a guess could reach the wrong one.
fn ambiguous(uri: &str, uris: &[String], revision: Revision) -> RpcError {
    let code = if revision.is_stateless() { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
    let message =
        format!("Several servers have this resource or may have it; use one of: {}", uris.join(", "));
    RpcError::new(code, message).with_data(json!({"uri": uri, "candidates": uris}))
}

/// Maps the error for an unknown resource to the code that the client's revision uses. In the stateless era it is an
/// invalid parameter, with the URI as its data.
fn with_revision_code(error: RpcError, method: ResourceMethod, revision: Revision) -> RpcError {
    let has_uri = || error.data.as_ref().is_some_and(|data| data.get("uri").is_some());
    let code = match error.code {
        code::RESOURCE_NOT_FOUND if revision.is_stateless() => code::INVALID_PARAMS,
        code::INVALID_PARAMS if !revision.is_stateless() && method.names_resource() && has_uri() => {
            code::RESOURCE_NOT_FOUND
        }
        _ => return error,
    };
    let converted = RpcError::new(code, error.message);
    match error.data {
        Some(data) => converted.with_data(data),
        None => converted,
    }
}

/// Renders the result of a request. Errors of the server pass unchanged.
pub(crate) fn into_rpc_result(call_result: &CallResult) -> Result<RawJson, RpcError> {
    match &call_result.result {
        Ok(output) => Ok(output.to_result()),
        Err(error) => Err(result::upstream_error(call_result).unwrap_or_else(|| {
            let data = json!({"kind": error.kind()});
            RpcError::new(code::INTERNAL_ERROR, error.text()).with_data(RawJson::from(data))
        })),
    }
}

fn string_param(params: &RawJson, name: &str) -> Result<String, RpcError> {
    let text = params.get(name).and_then(|text| text.read::<String>().ok());
    text.ok_or_else(|| RpcError::invalid_params(format_args!("{name} must be a string")))
}

/// A subscription that is recorded before its server confirms it, so that the end of the session finds it. Removed
/// again on drop unless it is kept.
struct NewSubscription<'s> {
    subscribers: &'s ServerSubscribers,
    resource: SubscribedResource,
    session: ClientSessionId,
    is_kept: bool,
}

impl<'s> NewSubscription<'s> {
    fn record(
        subscribers: &'s ServerSubscribers,
        resource: SubscribedResource,
        session: &ClientSessionId,
    ) -> Self {
        let is_new = subscribers.subscribe(&resource, session);
        Self { subscribers, resource, session: session.clone(), is_kept: !is_new }
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewSubscription<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.subscribers.unsubscribe(&self.resource, &self.session);
        }
    }
}
