//! The demo's endpoint after the tour, on a loopback address.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use pegboard::gateway::api::{self, ApiScope, GatewayInfo};
use pegboard::gateway::serve;
use pegboard::settings::gateway::GatewaySettings;
use pegboard::telemetry::write_stderr;
use pegboard::wire::http::server;
use pegboard::wiring::App;
use tokio::net::TcpListener;

use super::tour::GRACE;
use crate::cli::CliError;
use crate::commands::serve::access::{AdmittedClients, server_options};
use crate::commands::serve::activity::Activity;
use crate::commands::serve::{open_local_socket, serve_local_api, shutdown_signal};

/// Number of ports that are tried.
const MAX_PORTS: u16 = 100;

/// Listener of the demo's endpoint.
pub(super) struct DemoEndpoint {
    listener: TcpListener,
    address: SocketAddr,
    requested: SocketAddr,
}

impl DemoEndpoint {
    /// Binds the address, or the next free port.
    pub(super) async fn open(requested: SocketAddr) -> Result<Self, CliError> {
        if !requested.ip().is_loopback() {
            return Err(CliError::usage(format!(
                "refusing to listen on {requested}: the demo is for this machine only"
            ))
            .hint("use a loopback address such as 127.0.0.1, or pegboard serve with --token-env"));
        }
        let system = |error: io::Error| CliError::system(format!("cannot listen on {requested}: {error}"));
        let mut address = requested;
        for port in requested.port()..=requested.port().saturating_add(MAX_PORTS) {
            address.set_port(port);
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let address = listener.local_addr().map_err(system)?;
                    return Ok(Self { listener, address, requested });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(system(error)),
            }
        }
        Err(system(io::ErrorKind::AddrInUse.into()))
    }

    /// URL for MCP clients.
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Serves clients and API requests until shutdown.
    pub(super) async fn serve(
        self,
        app: &App,
        state: Option<&Path>,
        access: &AdmittedClients,
    ) -> Result<(), CliError> {
        let api = app.api(GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: vec![self.url()],
            ..GatewayInfo::default()
        });
        let options = server_options(self.address, &GatewaySettings::default());
        let application = access.restrict(&options, |_| {
            let clients = serve::application(&app.gateway, None, &options);
            let clients = clients.map_err(|error| CliError::system(error.to_string()))?;
            Ok(clients.merge(api::router(&api, ApiScope::All, &options)))
        })?;
        let (local_socket, activity) = (open_local_socket(state), Activity::default());
        write_stderr(&self.invitation(access));
        tokio::select! {
            served = server::serve(self.listener, application) => {
                served.map_err(|error| CliError::system(error.to_string()))?;
            }
            () = shutdown_signal() => {}
            () = serve_local_api(&api, local_socket, Router::new(), &activity) => {}
        }
        app.runtime.shut_down(GRACE).await;
        Ok(())
    }

    /// Lists commands to try.
    fn invitation(&self, access: &AdmittedClients) -> String {
        let endpoint = self.url();
        let instead = if [0, self.address.port()].contains(&self.requested.port()) {
            String::new()
        } else {
            format!("   ({} is in use)", self.requested)
        };
        let (token, header) = match access.token_path() {
            Some(path) => {
                let path = path.display().to_string().replace('\'', r"'\''");
                (format!("TOKEN=$(cat '{path}')\n  "), " --header \"Authorization: Bearer $TOKEN\"")
            }
            None => (String::new(), ""),
        };
        format!(
            "Ready  MCP {endpoint}{instead}\n\
             Try in another terminal, in a directory without a configuration (stop with Ctrl-C here):\n  \
             pegboard ls\n  \
             pegboard call shop/price item=lamp\n  \
             pegboard trace last\n  \
             {token}\
             curl{header} 'http://{}/api/tools?query=note'\n  \
             claude mcp add --transport http demo {endpoint}{header}\n  \
             npx @modelcontextprotocol/inspector --cli {endpoint} --transport http{header} --method tools/list",
            self.address
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_token_the_suggested_commands_send_no_header() {
        let endpoint = DemoEndpoint::open(([127, 0, 0, 1], 0).into()).await.unwrap();
        let invitation = endpoint.invitation(&AdmittedClients::OwnUser("no token".to_owned()));
        assert!(!invitation.contains("--header") && !invitation.contains("TOKEN"), "{invitation}");
    }
}
