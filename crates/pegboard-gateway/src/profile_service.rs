//! One profile as an MCP service, for clients of both eras.

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::ToolRef;
use pegboard_core::client::ClientMeta;
use pegboard_core::provider::{ProviderMethod, ProviderRequest};
use pegboard_core::settings::AutoOpen;
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, SessionMode};
use pegboard_wire::era::{Era, LogLevel, Revision};
use pegboard_wire::http::headers::HeaderParameter;
use pegboard_wire::server::{
    ClientDescription, ClientSessionId, McpService, ServerRequest, ServiceChange, ServiceDescription,
    ServiceReply,
};
use pegboard_wire::{Notification, RpcError};
use serde_json::json;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::client_request::ClientRequest;
use crate::client_request::suspended::SuspendedCalls;
use crate::custom_methods;
use crate::list_cache::{EraFields, ListContent, ListKey, ListSource};
use crate::meta::TOOL_OUTPUT;
use crate::opened_views::OpenedViews;
use crate::profile::{ActiveProfile, ProfileView};
use crate::resource_index::ListedItems;
use crate::resources::{ResourceMethod, ResourceRequest, ResourceService, context_of, into_rpc_result};
use crate::server_subscribers::ServerSubscribers;
use crate::sessions::SessionCallers;
use crate::surface::{ListRequest, ReplyFuture, Surface, Surfaces, call_tool};
use crate::tasks::{self, TaskTable};
use crate::warmup::{ServerWarmup, has_pending_servers, list_limit, wait_for_complete_listings};

/// Number of buffered change notifications; a client that lags further behind must re-read everything.
const CHANGE_BUFFER: usize = 64;

/// Maximum number of notifications of clients on their way to servers; more are dropped.
const MAX_NOTIFICATIONS: usize = 256;

/// Time for which a client may cache a list. Subscribed clients are notified of changes at once.
const LIST_TTL: Duration = Duration::from_mins(1);

/// Client capabilities that are forwarded to servers.
const FORWARDED_CAPABILITIES: [&str; 5] = ["elicitation", "sampling", "roots", "extensions", "experimental"];

/// Implementation info of this server.
pub(crate) static SERVER_INFO: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({"name": "pegboard", "title": "Pegboard", "version": env!("CARGO_PKG_VERSION")}))
});

/// One profile as an MCP service.
pub(crate) struct ProfileService {
    profile: Arc<ActiveProfile>,
    surfaces: watch::Sender<Arc<Surfaces>>,
    callers: SessionCallers,
    resources: Arc<ResourceService>,
    suspended: Arc<SuspendedCalls>,
    tasks: Arc<TaskTable>,
    views: OpenedViews,
    /// Notifications of clients on their way to servers.
    notification_slots: Arc<Semaphore>,
    changes: broadcast::Sender<ServiceChange>,
    warmup: ServerWarmup,
    /// Background tasks that send change notifications, started on first use.
    tool_watcher: OnceLock<AbortOnDropHandle<()>>,
    resource_watcher: OnceLock<AbortOnDropHandle<()>>,
}

impl ProfileService {
    /// Creates the service of a profile.
    pub(crate) fn new(profile: Arc<ActiveProfile>, subscribers: Arc<ServerSubscribers>) -> Arc<Self> {
        let changes = broadcast::Sender::new(CHANGE_BUFFER);
        Arc::new(Self {
            tasks: TaskTable::new(changes.clone()),
            surfaces: watch::Sender::new(Arc::new(Surfaces::build(&profile))),
            resources: Arc::new(ResourceService::new(Arc::clone(&profile), subscribers)),
            profile,
            callers: SessionCallers::default(),
            suspended: Arc::default(),
            views: OpenedViews::default(),
            notification_slots: Arc::new(Semaphore::new(MAX_NOTIFICATIONS)),
            changes,
            warmup: ServerWarmup::default(),
            tool_watcher: OnceLock::new(),
            resource_watcher: OnceLock::new(),
        })
    }

    /// Returns the current view.
    pub(crate) fn view(&self) -> Arc<ProfileView> {
        self.profile.view()
    }

    /// Replaces the view. Clients stay connected and are notified if their tool list changes.
    pub(crate) fn replace_view(&self, view: ProfileView) {
        if self.profile.replace_view(view) {
            self.surfaces.send_replace(Arc::new(Surfaces::build(&self.profile)));
        }
    }

    /// Starts servers added since the first warm-up, if there was one.
    pub(crate) fn warm_up_new_servers(&self) {
        self.warmup.restart(&self.profile);
    }

    fn surfaces(&self) -> Arc<Surfaces> {
        Arc::clone(&self.surfaces.borrow())
    }

    /// Starts servers in advance if their tools are listed directly.
    pub(crate) fn start(&self) {
        if self.surfaces().default_surface().follows_catalogue() {
            self.warm_up();
        }
    }

    /// Starts all servers, once.
    pub(crate) fn warm_up(&self) {
        self.warmup.start(&self.profile);
    }

    /// Returns the caller for a request.
    fn caller(&self, surface: &dyn Surface, request: &ServerRequest) -> Caller {
        let caller = self.caller_in(surface, request.session.as_ref());
        if request.session.is_some() && caller.client().is_none() {
            let name = request.client.info.as_ref().and_then(|info| info.get("name"));
            if let Some(name) = name.as_ref().and_then(RawJson::text) {
                caller.name_client(&name);
            }
        }
        caller
    }

    /// Returns the caller of a session, or a new one.
    fn caller_in(&self, surface: &dyn Surface, session: Option<&ClientSessionId>) -> Caller {
        let session_mode = surface.session_mode();
        match session {
            Some(session) => {
                let caller = self.callers.get_or_create(session, || self.profile.caller(session_mode));
                self.profile.refresh_scope(&caller, session_mode);
                caller
            }
            None if session_mode == SessionMode::AllOpen
                && self.profile.runtime.settings().auto_open == AutoOpen::Never =>
            {
                // Toolboxes never open automatically but all are open on this surface, so a stateless caller
                // cannot be used. Outputs stored for this caller cannot be read by later requests.
                self.profile.caller(SessionMode::AllOpen)
            }
            None => self.profile.caller(SessionMode::Stateless),
        }
    }

    /// Lists the tools for a caller, after giving servers time to start.
    fn list_tools(
        &self,
        view: Arc<ProfileView>,
        surface: Arc<dyn Surface>,
        caller: Caller,
        request: &ServerRequest,
    ) -> ReplyFuture {
        let (profile, follows) = (Arc::clone(&self.profile), surface.follows_catalogue());
        let era = request.revision.era();
        let settled = follows.then(|| {
            self.warm_up();
            self.warmup.settled(&profile, list_limit(&profile, &request.client))
        });
        async move {
            if let Some(settled) = settled {
                settled.await;
            }
            let ttl = list_ttl(&profile, follows);
            // Loaded before the list is made, so that the list of a snapshot is never older than it.
            let snapshot = profile.runtime.catalogue();
            let request = ListRequest { caller: &caller, era };
            let has_tool_output = TOOL_OUTPUT.is_listed(&request);
            let content = ListContent::Tools { expose: surface.expose(), has_tool_output };
            let key = ListKey { member: "tools", content, era_fields: EraFields::new(era, ttl) };
            let list = || ListSource {
                list: surface.list(&request),
                last_known: if follows { profile.stale_servers(&snapshot) } else { Vec::new() },
            };
            Ok(ServiceReply::Result(view.lists(&snapshot).get(&key, list)))
        }
        .boxed()
    }

    fn call_tool(
        &self,
        surface: &dyn Surface,
        caller: Caller,
        era: Era,
        request: ServerRequest,
    ) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let name = request.params.get("name");
        let Some(name) = name.as_ref().and_then(RawJson::text) else {
            return ready(Err(RpcError::invalid_params("name must be the name of a tool"))).boxed();
        };
        let arguments = request.params.get("arguments").unwrap_or_else(RawJson::empty_object);
        if !arguments.is_object() {
            return ready(Err(RpcError::invalid_params("arguments must be an object"))).boxed();
        }
        let task = match tasks::requested_ttl(&request, || self.tool_definition(&name)) {
            Ok(task) => task,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let view_tool = self.views.find_tool(&self.profile, request.session.as_ref(), &name);
        let view_tool =
            view_tool.filter(|_| !surface.owns_name(&name) && surface.find_listed(&name).is_none());
        let client_request = ClientRequest { task, ..self.client_request(caller, era, request) };
        match view_tool {
            Some(tool) => call_tool(client_request, ToolRef::Id(tool), arguments),
            None => surface.call(client_request, &name, arguments),
        }
    }

    /// Returns the definition of a server's tool.
    fn tool_definition(&self, tool: &str) -> Option<RawJson> {
        let surfaces = self.surfaces();
        if surfaces.default_surface().owns_name(tool) {
            return None;
        }
        let snapshot = self.profile.runtime.catalogue();
        if let Some(id) = surfaces.all().find_map(|surface| surface.find_listed(tool)) {
            return Some(snapshot.by_id(&id)?.entry.definition());
        }
        self.profile.with_scope(|scope| {
            let found = snapshot.resolve(tool, scope).ok()?;
            Some(found.tool.entry.definition())
        })
    }

    fn client_request(&self, caller: Caller, era: Era, request: ServerRequest) -> ClientRequest {
        let meta = request_meta(&request);
        let trace_parent = request.forwarded_meta.trace_parent;
        ClientRequest {
            profile: Arc::clone(&self.profile),
            caller,
            era,
            client: request.client,
            peer: request.peer,
            answers: request.input_responses,
            state: request.state,
            trace_parent: trace_parent.and_then(|parent| parent.text()?.parse().ok()),
            meta,
            suspended: Arc::clone(&self.suspended),
            tasks: Arc::clone(&self.tasks),
            session: request.session,
            task: None,
            label: None,
        }
    }

    /// Lists prompts, resources or templates, after giving servers time to report them.
    fn list_resources(&self, caller: Caller, request: &ServerRequest) -> ReplyFuture {
        let (kind, era) = (ListedItems::from_method(&request.method), request.revision.era());
        let profile = Arc::clone(&self.profile);
        let settled = self.warmup.settled(&profile, list_limit(&profile, &request.client));
        async move {
            settled.await;
            wait_for_complete_listings(&profile).await;
            let ttl = list_ttl(&profile, true);
            let (view, snapshot) = (profile.view(), profile.runtime.catalogue());
            let index = view.resource_index(&snapshot);
            let toolboxes = index.open_toolboxes(&caller);
            let content = ListContent::OfToolboxes(toolboxes.clone());
            let key = ListKey { member: kind.result_key(), content, era_fields: EraFields::new(era, ttl) };
            let list = || ListSource {
                list: index.list(kind, &toolboxes),
                last_known: profile.stale_servers(&snapshot),
            };
            Ok(ServiceReply::Result(view.lists(&snapshot).get(&key, list)))
        }
        .boxed()
    }

    /// Returns the server description for clients of a surface.
    fn describe_surface(&self, surface: &dyn Surface, revision: Revision) -> ServiceDescription {
        let mut capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "completions": {},
            "logging": {},
        });
        let snapshot = self.profile.runtime.catalogue();
        let listings = snapshot.listings().filter(|(listing, _)| self.profile.has_toolbox(&listing.toolbox));
        for (listing, _) in listings {
            let offer = &listing.offer;
            for (kind, declared) in [("extensions", &offer.extensions), ("experimental", &offer.experimental)]
            {
                let Some(declared) = declared else { continue };
                for name in declared.names().iter().filter(|name| *name != tasks::EXTENSION) {
                    // If two servers describe the same feature, the first one wins.
                    let known = &mut capabilities[kind][name];
                    if known.is_null() {
                        *known = declared.get(name).map(|value| value.to_value()).unwrap_or_default();
                    }
                }
            }
        }
        tasks::add_capability(revision, &mut capabilities);
        ServiceDescription {
            info: SERVER_INFO.clone(),
            capabilities: RawJson::from(capabilities),
            instructions: surface.instructions(),
        }
    }

    /// Forwards a request with a method that the protocol does not define.
    fn custom_request(&self, surface: &dyn Surface, era: Era, request: ServerRequest) -> ReplyFuture {
        let found = custom_methods::find_server(&self.profile, &request.method, &request.params);
        let (server, params) = match found {
            Ok(found) => found,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let caller = self.caller(surface, &request);
        let method = ProviderMethod::Custom(Arc::clone(&request.method));
        let client_request = self.client_request(caller, era, request);
        let provider_request = ProviderRequest { method, params };
        async move { client_request.request(&server, provider_request, into_rpc_result).await }.boxed()
    }

    /// Handles a request for a prompt, resource, completion or subscription.
    fn handle_resource_request(
        &self,
        method: ResourceMethod,
        caller: Caller,
        era: Era,
        request: ServerRequest,
    ) -> ReplyFuture {
        let resource_request = ResourceRequest {
            method,
            session: request.session.clone(),
            params: request.params.clone(),
            revision: request.revision,
        };
        if let (ResourceMethod::ReadResource, Some(session)) = (method, &request.session)
            && let Some(server) = self.resources.server_of_view(&request.params)
        {
            self.views.open(session, &server);
        }
        let resources = Arc::clone(&self.resources);
        let client_request = self.client_request(caller, era, request);
        async move { resources.handle(resource_request, client_request).await }.boxed()
    }
}

impl McpService for ProfileService {
    fn info(&self) -> RawJson {
        SERVER_INFO.clone()
    }

    fn describe(&self, revision: Revision) -> ServiceDescription {
        self.describe_surface(&**self.surfaces().default_surface(), revision)
    }

    fn describe_for(&self, revision: Revision, client: &ClientDescription) -> ServiceDescription {
        self.describe_surface(&**self.surfaces().for_client(client), revision)
    }

    /// Waits for servers, since the description includes their instructions.
    fn prepare(&self, revision: Revision, client: &ClientDescription) -> BoxFuture<'static, ()> {
        if !self.surfaces().for_client(client).follows_catalogue() {
            return ready(()).boxed();
        }
        self.warm_up();
        self.warmup.settled_for_handshake(&self.profile, client, revision.era()).boxed()
    }

    /// As for lists: the instructions and extensions of servers are part of it.
    fn description_ttl(&self, client: &ClientDescription) -> Duration {
        let follows = self.surfaces().for_client(client).follows_catalogue();
        list_ttl(&self.profile, follows)
    }

    fn extra_meta(&self, client: &ClientDescription) -> Option<RawJson> {
        let choice = self.surfaces().choice(client)?;
        tracing::info!(expose = choice.expose.as_str(), why = choice.reason, "Chose a surface for a client.");
        Some(choice.as_meta())
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let era = request.revision.era();
        let surfaces = self.surfaces();
        let surface = Arc::clone(surfaces.for_client(&request.client));
        if request.method.ends_with("/list")
            && !request.method.starts_with("tasks/")
            && let Some(error) = unknown_cursor(&request.params)
        {
            return ready(Err(error)).boxed();
        }
        match &*request.method {
            "tools/list" => {
                let caller = self.caller(&*surface, &request);
                self.list_tools(Arc::clone(&surfaces.view), surface, caller, &request)
            }
            "tools/call" => {
                let caller = self.caller(&*surface, &request);
                self.call_tool(&*surface, caller, era, request)
            }
            "prompts/list" | "resources/list" | "resources/templates/list" => {
                self.list_resources(self.caller(&*surface, &request), &request)
            }
            method if method.starts_with("tasks/") => {
                let owner = self.caller(&*surface, &request).owner().clone();
                tasks::answer(Arc::clone(&self.tasks), request, owner).boxed()
            }
            // The wire layer keeps the level of each session.
            "logging/setLevel" => {
                let level = request.params.get("level").and_then(|level| level.read::<LogLevel>().ok());
                if let (Some(session), Some(level)) = (&request.session, level) {
                    self.profile.watched_sessions.set_log_level(session, level);
                    self.resources.set_log_level(session, level);
                }
                ready(Ok(ServiceReply::Result(RawJson::empty_object()))).boxed()
            }
            method => match ResourceMethod::from_method(method) {
                Some(resource_method) => {
                    let caller = self.caller(&*surface, &request);
                    self.handle_resource_request(resource_method, caller, era, request)
                }
                None => self.custom_request(&*surface, era, request),
            },
        }
    }

    fn on_notification(&self, session: &ClientSessionId, notification: Notification) {
        let Notification { method, params, .. } = notification;
        if &*method == "notifications/roots/list_changed" {
            self.profile.watched_sessions.record_roots_change(session);
        }
        if custom_methods::is_standard_notification(&method) {
            return;
        }
        let params = params.unwrap_or_else(RawJson::empty_object);
        let Ok((server, params)) = custom_methods::find_server(&self.profile, &method, &params) else {
            return;
        };
        let Ok(permit) = Arc::clone(&self.notification_slots).try_acquire_owned() else {
            tracing::debug!(%method, "Dropping a notification: too many are on their way.");
            return;
        };
        let caller = self.caller_in(&**self.surfaces().default_surface(), Some(session));
        let request = ProviderRequest { method: ProviderMethod::CustomNotification(method), params };
        // The request has its own timeout.
        tokio::spawn(async move {
            caller.request(&server, request, context_of(Era::Session)).await;
            drop(permit);
        });
    }

    fn on_resources_watched(&self, stream: &ClientSessionId, resources: &[String]) -> BoxFuture<'static, ()> {
        if resources.is_empty() {
            return ready(()).boxed();
        }
        Arc::clone(&self.resources).subscribe_all(stream.clone(), resources.to_vec()).boxed()
    }

    fn on_session_ended(&self, session: &ClientSessionId) {
        self.profile.watched_sessions.remove(session);
        self.tasks.end_session(session);
        self.views.end_session(session);
        self.callers.remove(session);
        self.resources.end_session(session);
    }

    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        self.tool_watcher.get_or_init(|| {
            let watching =
                watch_tool_lists(Arc::clone(&self.profile), self.surfaces.subscribe(), self.changes.clone());
            AbortOnDropHandle::new(tokio::spawn(watching))
        });
        self.resource_watcher.get_or_init(|| {
            let forwarding = Arc::clone(&self.resources).forward_changes(self.changes.clone());
            AbortOnDropHandle::new(tokio::spawn(forwarding))
        });
        Some(self.changes.subscribe())
    }

    fn header_parameters(&self, tool: &str) -> Vec<HeaderParameter> {
        let snapshot = self.profile.runtime.catalogue();
        self.view().header_parameters(&snapshot).get(tool, || self.tool_definition(tool))
    }
}

/// Returns the time for which a client may keep a list: none while it may change because servers are starting.
fn list_ttl(profile: &ActiveProfile, follows_catalogue: bool) -> Duration {
    if follows_catalogue && has_pending_servers(profile) { Duration::ZERO } else { LIST_TTL }
}

/// Rejects a cursor: lists have one page, so none was ever given out.
fn unknown_cursor(params: &RawJson) -> Option<RpcError> {
    let cursor = params.get("cursor").filter(|cursor| cursor.as_bytes() != b"null")?;
    let problem = if cursor.text().is_some() {
        "unknown cursor; request the list without one"
    } else {
        "cursor must be a string"
    };
    Some(RpcError::invalid_params(problem))
}

/// Returns the `_meta` to forward with a request.
fn request_meta(request: &ServerRequest) -> ClientMeta {
    ClientMeta {
        capabilities: Some(forwarded_capabilities(&request.client.capabilities)),
        log_level: request.peer.log_level().map(LogLevel::as_json),
        custom: request.forwarded_meta.custom.clone(),
    }
}

/// Returns the capabilities that servers may know of.
fn forwarded_capabilities(declared: &RawJson) -> RawJson {
    let is_hidden = |name: &str| !FORWARDED_CAPABILITIES.contains(&name);
    if declared.is_object() && !declared.has_member(is_hidden) {
        return declared.clone();
    }
    let values = declared.get_all(FORWARDED_CAPABILITIES);
    let mut named = FORWARDED_CAPABILITIES.map(|name| (name, None));
    for ((_, forwarded), value) in named.iter_mut().zip(&values) {
        *forwarded = value.as_ref();
    }
    RawJson::empty_object().with_all(&named)
}

/// Notifies clients when their tool list changes.
async fn watch_tool_lists(
    profile: Arc<ActiveProfile>,
    mut surfaces: watch::Receiver<Arc<Surfaces>>,
    changes: broadcast::Sender<ServiceChange>,
) {
    // Lists may be long; a digest is enough to detect a change.
    let digests = |surfaces: Arc<Surfaces>| {
        let caller = profile.caller(SessionMode::Stateless);
        let request = ListRequest { caller: &caller, era: Era::Stateless };
        surfaces.all().map(|surface| surface.list_digest(&request)).collect::<Vec<u64>>()
    };
    let mut catalogues = profile.runtime.catalogue_changes();
    let mut listed = digests(Arc::clone(&surfaces.borrow_and_update()));
    loop {
        let wake = tokio::select! {
            catalogue = catalogues.changed() => catalogue,
            surface = surfaces.changed() => surface,
        };
        if wake.is_err() {
            return;
        }
        let now = digests(Arc::clone(&surfaces.borrow_and_update()));
        if now != listed {
            listed = now;
            // Without receivers the notification is dropped.
            let _ = changes.send(ServiceChange::Tools);
        }
    }
}
