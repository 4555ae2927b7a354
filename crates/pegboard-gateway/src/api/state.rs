//! State shared by the API handlers.

use std::sync::Arc;
use std::time::SystemTime;

use axum::http::{HeaderMap, header};
use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_runtime::{Caller, CallerOptions, OutputRetention, Runtime, ServerAffinity, SessionMode};
use pegboard_wire::http::server::HttpServerOptions;

use super::problem::ApiProblem;
use super::{Api, ApiScope};

/// The API as one principal sees it.
pub(super) struct ApiState {
    pub(super) api: Api,
    /// Owners with visible data.
    pub(super) scope: OwnerScope,
    /// Owner of the calls.
    owner: Owner,
    pub(super) options: HttpServerOptions,
}

impl ApiState {
    pub(super) fn new(api: Api, scope: ApiScope, options: HttpServerOptions) -> Self {
        let (scope, owner) = scope.into_owners();
        Self { api, scope, owner, options }
    }

    /// Returns the runtime.
    pub(super) fn runtime(&self) -> Result<&Runtime, ApiProblem> {
        self.api.runtime.as_ref().ok_or_else(ApiProblem::not_running)
    }

    /// Current time.
    pub(super) fn now(&self) -> SystemTime {
        self.api.clock.now()
    }

    /// Returns a caller for this principal: a new one, or the one that requests with this session name share.
    pub(super) fn caller(&self, session: Option<&str>) -> Result<Caller, ApiProblem> {
        let runtime = self.runtime()?;
        let new = |affinity| {
            runtime.caller(CallerOptions {
                owner: self.owner.clone(),
                session_mode: SessionMode::AllOpen,
                output_retention: OutputRetention::UntilExpiry,
                affinity,
                ..CallerOptions::default()
            })
        };
        match session {
            None => Ok(new(ServerAffinity::Principal)),
            Some(session) => {
                self.api.named_callers.get_or_create(&self.owner, session, || new(ServerAffinity::Session))
            }
        }
    }

    /// Returns a caller as [`caller`](Self::caller) does, with the name of the program that sent the request.
    pub(super) fn named_caller(
        &self,
        session: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Caller, ApiProblem> {
        let caller = self.caller(session)?;
        // `curl/8.5.0` and `Mozilla/5.0 (X11; …)` begin with the name.
        let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let name = agent.and_then(|agent| agent.split(['/', ' ']).next()).unwrap_or_default();
        if !name.is_empty() {
            caller.name_client(name);
        }
        Ok(caller)
    }
}

/// The state as an axum extractor.
pub(super) type SharedApiState = axum::extract::State<Arc<ApiState>>;
