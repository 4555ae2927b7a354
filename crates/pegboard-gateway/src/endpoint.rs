//! One profile as a service of the protocol, for clients of both eras.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::settings::AutoOpen;
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, Memory};
use pegboard_wire::RpcError;
use pegboard_wire::era::{Revision, meta};
use pegboard_wire::http::headers::{HeaderParameter, parameters_of};
use pegboard_wire::server::{
    Change, ClientDescription, Description, Reply, ServerRequest, Service, SessionId,
};
use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::extras::{Extra, Order, ReadingRoom};
use crate::library::Kind;
use crate::profile::{Board, View};
use crate::sessions::Callers;
use crate::surface::{Answering, Life, Surface, Surfaces, Viewer};
use crate::tasks::{self, Table};
use crate::visit::Visit;
use crate::visit::desk::Desk;
use crate::warming::{WarmUp, is_awaited, whole};

/// How many changes a client may be behind before it must read everything anew.
const MAX_CHANGES: usize = 64;

/// How long a client may keep a list without asking again. Who listens hears at once that it is another.
const KEEP: Duration = Duration::from_mins(1);

/// What a client can do that its servers may make use of.
const CARRIED: [&str; 5] = ["elicitation", "sampling", "roots", "extensions", "experimental"];

/// Who this is.
static INFO: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({"name": "pegboard", "title": "Pegboard", "version": env!("CARGO_PKG_VERSION")}))
});

/// One profile as a service of the protocol.
pub(crate) struct Endpoint {
    board: Arc<Board>,
    surfaces: watch::Sender<Arc<Surfaces>>,
    callers: Callers,
    reading: Arc<ReadingRoom>,
    desk: Arc<Desk>,
    tasks: Arc<Table>,
    changes: broadcast::Sender<Change>,
    warming: WarmUp,
    /// Who tells of changes, once somebody wants to hear of them.
    watching: OnceLock<AbortOnDropHandle<()>>,
    telling: OnceLock<AbortOnDropHandle<()>>,
}

impl Endpoint {
    /// The service of a board.
    pub(crate) fn new(board: Arc<Board>) -> Arc<Self> {
        let changes = broadcast::Sender::new(MAX_CHANGES);
        Arc::new(Self {
            tasks: Table::new(changes.clone()),
            surfaces: watch::Sender::new(Arc::new(Surfaces::of(&board))),
            reading: Arc::new(ReadingRoom::new(Arc::clone(&board))),
            board,
            callers: Callers::default(),
            desk: Arc::default(),
            changes,
            warming: WarmUp::default(),
            watching: OnceLock::new(),
            telling: OnceLock::new(),
        })
    }

    /// How its clients see the tools now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.board.view()
    }

    /// Has its clients see the tools in another way. They stay, and hear of it if they see other tools now.
    pub(crate) fn show(&self, view: View) {
        if self.board.show(view) {
            self.surfaces.send_replace(Arc::new(Surfaces::of(&self.board)));
        }
    }

    /// Makes servers ready that have come since, if others were made ready before.
    pub(crate) fn warm_up_again(&self) {
        self.warming.again(&self.board);
    }

    fn surfaces(&self) -> Arc<Surfaces> {
        Arc::clone(&self.surfaces.borrow())
    }

    /// Makes servers ready whose tools are listed by themselves.
    pub(crate) fn start(&self) {
        if self.surfaces().for_anybody().follows_catalogue() {
            self.warm_up();
        }
    }

    /// Makes all servers ready, once.
    pub(crate) fn warm_up(&self) {
        self.warming.begin(&self.board);
    }

    /// Whoever makes the calls of a request.
    fn caller(&self, surface: &dyn Surface, session: Option<&SessionId>) -> Caller {
        let memory = surface.memory();
        match session {
            Some(session) => {
                let caller = self.callers.of(session, || self.board.caller(memory));
                self.board.welcome(&caller, memory);
                caller
            }
            None if memory == Memory::Everything
                && self.board.runtime.settings().auto_open == AutoOpen::Never =>
            {
                // Toolboxes do not open by themselves, and on this surface all are open: so it cannot be known
                // again for what was stored.
                self.board.caller(Memory::Everything)
            }
            None => self.board.caller(Memory::Stateless),
        }
    }

    /// The list for somebody, once the servers have had time to be ready.
    fn list(
        &self,
        surface: Arc<dyn Surface>,
        caller: Caller,
        life: Life,
    ) -> BoxFuture<'static, Result<Reply, RpcError>> {
        if surface.follows_catalogue() {
            self.warm_up();
        }
        let (board, follows) = (Arc::clone(&self.board), surface.follows_catalogue());
        let waiting = follows.then(|| self.warming.settled(&board));
        async move {
            if let Some(settled) = waiting {
                settled.await;
            }
            let tools = surface.list(&Viewer { caller: &caller, life });
            let keep = if follows && is_awaited(&board) { Duration::ZERO } else { KEEP };
            Ok(Reply::Result(to_be_kept(&RawJson::empty_object().with("tools", &tools), keep)))
        }
        .boxed()
    }

    fn call_tool(
        &self,
        surface: &dyn Surface,
        caller: Caller,
        life: Life,
        request: ServerRequest,
    ) -> BoxFuture<'static, Result<Reply, RpcError>> {
        let name = request.params.get("name");
        let Some(name) = name.as_ref().and_then(RawJson::text) else {
            return ready(Err(RpcError::invalid_params("name must be the name of a tool"))).boxed();
        };
        let arguments = request.params.get("arguments").unwrap_or_else(RawJson::empty_object);
        let task = match tasks::wish(&request, || self.definition(&name)) {
            Ok(task) => task,
            Err(error) => return ready(Err(error)).boxed(),
        };
        surface.call(Visit { task, ..self.visit(caller, life, request) }, &name, arguments)
    }

    /// A tool of a server, as it describes it.
    fn definition(&self, tool: &str) -> Option<RawJson> {
        if self.surfaces().for_anybody().is_own(tool) {
            return None;
        }
        let snapshot = self.board.runtime.catalogue();
        self.board.with_scope(|scope| {
            // Where prefixes are left out, a plain name is the tool's own.
            let found = snapshot.resolve(tool, scope, &|_| true).ok()?;
            Some(found.tool.entry.definition())
        })
    }

    fn visit(&self, caller: Caller, life: Life, request: ServerRequest) -> Visit {
        let trace_parent = request.params.at(&["_meta", "traceparent"]);
        let remarks = remarks(&request);
        Visit {
            board: Arc::clone(&self.board),
            caller,
            life,
            client: request.client,
            peer: request.peer,
            answers: request.answers,
            state: request.state,
            trace_parent: trace_parent.and_then(|parent| parent.text()?.parse().ok()),
            remarks,
            desk: Arc::clone(&self.desk),
            tasks: Arc::clone(&self.tasks),
            session: request.session,
            task: None,
            label: None,
        }
    }

    /// A list of something that is no tool, once servers have had time to say what they have.
    fn list_extras(&self, kind: Kind, caller: Caller) -> Answering {
        let reading = Arc::clone(&self.reading);
        let (settled, board) = (self.warming.settled(&self.board), Arc::clone(&self.board));
        async move {
            settled.await;
            let list = reading.list(kind, &caller).await;
            let keep = if is_awaited(&board) { Duration::ZERO } else { KEEP };
            Ok(Reply::Result(to_be_kept(&list, keep)))
        }
        .boxed()
    }

    /// What a client is told of a surface before it asks for anything.
    fn describe_as(&self, surface: &dyn Surface, revision: Revision) -> Description {
        let mut capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "completions": {},
        });
        if !revision.is_stateless() {
            capabilities["logging"] = json!({});
        }
        let snapshot = self.board.runtime.catalogue();
        let here = snapshot.shelves().filter(|(shelf, _)| self.board.has(&shelf.toolbox));
        for extensions in here.filter_map(|(shelf, _)| shelf.offer.extensions.as_ref()) {
            for name in extensions.names().iter().filter(|name| *name != tasks::EXTENSION) {
                // Of two servers that describe one the first is heard.
                let known = &mut capabilities["extensions"][name];
                if known.is_null() {
                    *known = extensions.get(name).map(|how| how.to_value()).unwrap_or_default();
                }
            }
        }
        tasks::describe(revision, &mut capabilities);
        Description {
            info: INFO.clone(),
            capabilities: RawJson::from(capabilities),
            instructions: surface.instructions(),
        }
    }

    /// Something beside tools that a client wants done.
    fn do_extra(&self, extra: Extra, caller: Caller, life: Life, request: ServerRequest) -> Answering {
        let order = Order {
            extra,
            session: request.session.clone(),
            params: request.params.clone(),
            revision: request.revision,
        };
        let (board, reading) = (Arc::clone(&self.board), Arc::clone(&self.reading));
        let is_unknown = !reading.has(&order);
        if is_unknown {
            // Servers that nobody has used yet may be the ones that have it.
            self.warm_up();
        }
        let settled = is_unknown.then(|| self.warming.settled(&board));
        let visit = self.visit(caller, life, request);
        async move {
            if let Some(settled) = settled {
                settled.await;
                whole(&board).await;
            }
            reading.carry_out(order, visit).await
        }
        .boxed()
    }
}

impl Service for Endpoint {
    fn info(&self) -> RawJson {
        INFO.clone()
    }

    fn describe(&self, revision: Revision) -> Description {
        self.describe_as(&**self.surfaces().for_anybody(), revision)
    }

    fn describe_to(&self, revision: Revision, client: &ClientDescription) -> Description {
        self.describe_as(&**self.surfaces().for_client(client), revision)
    }

    fn remarks(&self, client: &ClientDescription) -> Option<RawJson> {
        let choice = self.surfaces().choice(client)?;
        tracing::info!(
            expose = choice.expose.as_str(),
            why = choice.why,
            "A surface was chosen for a client."
        );
        Some(choice.as_meta())
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        let life = if request.session.is_some() { Life::Session } else { Life::Stateless };
        let surface = Arc::clone(self.surfaces().for_client(&request.client));
        match &*request.method {
            "tools/list" => {
                let caller = self.caller(&*surface, request.session.as_ref());
                self.list(surface, caller, life)
            }
            "tools/call" => {
                let caller = self.caller(&*surface, request.session.as_ref());
                self.call_tool(&*surface, caller, life, request)
            }
            "prompts/list" | "resources/list" | "resources/templates/list" => {
                let kind = Kind::of(&request.method);
                self.list_extras(kind, self.caller(&*surface, request.session.as_ref()))
            }
            method if method.starts_with("tasks/") => {
                let owner = self.caller(&*surface, request.session.as_ref()).owner().to_owned();
                tasks::answer(Arc::clone(&self.tasks), request, owner).boxed()
            }
            // The wire keeps the level for each session.
            "logging/setLevel" => {
                if let Some(level) = request.params.get("level") {
                    self.reading.set_log_level(&level);
                }
                ready(Ok(Reply::Result(RawJson::empty_object()))).boxed()
            }
            method => match Extra::of(method) {
                Some(extra) => {
                    let caller = self.caller(&*surface, request.session.as_ref());
                    self.do_extra(extra, caller, life, request)
                }
                None => ready(Err(RpcError::method_not_found(method))).boxed(),
            },
        }
    }

    fn watched(&self, stream: &SessionId, resources: &[String]) -> BoxFuture<'static, ()> {
        if resources.is_empty() {
            return ready(()).boxed();
        }
        Arc::clone(&self.reading).watch(stream.clone(), resources.to_vec()).boxed()
    }

    fn ended(&self, session: &SessionId) {
        self.tasks.end(session);
        self.callers.end(session);
        self.reading.end(session);
    }

    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        self.watching.get_or_init(|| {
            let following = follow(Arc::clone(&self.board), self.surfaces.subscribe(), self.changes.clone());
            AbortOnDropHandle::new(tokio::spawn(following))
        });
        self.telling.get_or_init(|| {
            let telling = Arc::clone(&self.reading).tell(self.changes.clone());
            AbortOnDropHandle::new(tokio::spawn(telling))
        });
        Some(self.changes.subscribe())
    }

    fn header_parameters(&self, tool: &str) -> Vec<HeaderParameter> {
        let schema = self.definition(tool).and_then(|definition| definition.get("inputSchema"));
        // A schema whose marks cannot be used asks for no headers.
        parameters_of(schema.as_ref()).unwrap_or_default()
    }
}

/// A list with how long it may be kept. What one client sees, another may not be meant to.
fn to_be_kept(list: &RawJson, keep: Duration) -> RawJson {
    list.with("ttlMs", &RawJson::of(&keep.as_millis())).with("cacheScope", &RawJson::of("private"))
}

/// What came along with a request for whoever carries it out, in the words of the stateless era.
fn remarks(request: &ServerRequest) -> RawJson {
    let given = request.params.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let own = [meta::PROTOCOL_VERSION, meta::CLIENT_INFO, meta::CLIENT_CAPABILITIES, meta::LOG_LEVEL];
    let mut remarks = own.iter().fold(given.without("progressToken"), |rest, key| rest.without(key));
    let told = CARRIED.iter().filter_map(|name| Some((name, request.client.capabilities.get(name)?)));
    let capabilities = told.fold(RawJson::empty_object(), |all, (name, value)| all.with(name, &value));
    remarks = remarks.with(meta::CLIENT_CAPABILITIES, &capabilities);
    match request.peer.log_level() {
        Some(level) => remarks.with(meta::LOG_LEVEL, &RawJson::of(&level)),
        None => remarks,
    }
}

/// Tells clients when other tools are listed than before.
async fn follow(
    board: Arc<Board>,
    mut surfaces: watch::Receiver<Arc<Surfaces>>,
    changes: broadcast::Sender<Change>,
) {
    // A list may be long; that it is another is all that matters.
    let digest = |surfaces: Arc<Surfaces>| {
        let caller = board.caller(Memory::Stateless);
        let mut hasher = DefaultHasher::new();
        for surface in surfaces.all() {
            surface.list(&Viewer { caller: &caller, life: Life::Stateless }).as_bytes().hash(&mut hasher);
        }
        hasher.finish()
    };
    let mut catalogues = board.runtime.catalogue_changes();
    let mut listed = digest(Arc::clone(&surfaces.borrow_and_update()));
    loop {
        let news = tokio::select! {
            news = catalogues.changed() => news,
            news = surfaces.changed() => news,
        };
        if news.is_err() {
            return;
        }
        let now = digest(Arc::clone(&surfaces.borrow_and_update()));
        if now != listed {
            listed = now;
            // With nobody connected it is simply lost.
            let _ = changes.send(Change::Tools);
        }
    }
}
