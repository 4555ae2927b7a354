//! There is no local socket on this platform, so every gateway is for its own clients.

use std::path::PathBuf;

use axum::Router;
use pegboard::config::Configuration;
use pegboard::gateway::Gateway;
use pegboard::gateway::api::{AttachedClients, GatewayMode};
use pegboard::runtime::Runtime;

use super::ServeArgs;
use super::activity::Activity;
use super::claim_error::ClaimError;
use crate::cli::Globals;
use crate::paths::ConfigSelection;

/// No claim to the configuration.
pub(super) struct UnsharedClaim {
    mode: GatewayMode,
    activity: Activity,
}

impl UnsharedClaim {
    pub(super) async fn take(
        serve: &ServeArgs,
        _globals: &Globals,
        _selection: &ConfigSelection,
        _configuration: &Configuration,
    ) -> Result<Self, ClaimError> {
        let mode = if serve.stdio { GatewayMode::Stdio } else { GatewayMode::Foreground };
        Ok(Self { mode, activity: Activity::default() })
    }

    pub(super) fn mode(&self) -> GatewayMode {
        self.mode.clone()
    }

    pub(super) fn list(&self) -> AttachedClients {
        AttachedClients::default()
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn route(&mut self, _gateway: &Gateway) -> Router {
        Router::new()
    }

    pub(super) fn publish(&mut self) {}

    pub(super) async fn idle(&self, _runtime: &Runtime) {
        std::future::pending().await
    }

    pub(super) fn release(&mut self) {}

    pub(super) fn log(&self) -> Option<PathBuf> {
        None
    }

    pub(super) fn save_logs(&self, _runtime: &Runtime) {}

    pub(super) async fn close_clients(&mut self) {}
}
