//! The endpoint of the demo after the tour: there for other clients, on a loopback address.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use anstream::eprintln;
use pegboard::gateway::api::{self, About, Principal};
use pegboard::gateway::serve;
use pegboard::wire::http::server::{self, HttpServerOptions};
use pegboard::wiring::Board;
use tokio::net::TcpListener;

use super::story::GRACE;
use crate::cli::Failure;
use crate::commands::serve::{answer_commands, told};

/// How many ports are tried, from the one that was asked for.
const MAX_PORTS: u16 = 100;

/// The place where clients are waited for.
pub(super) struct Stand {
    listener: TcpListener,
    address: SocketAddr,
    asked: SocketAddr,
}

impl Stand {
    /// Takes the address, or the next port that is free.
    pub(super) async fn open(asked: SocketAddr) -> Result<Self, Failure> {
        if !asked.ip().is_loopback() {
            return Err(Failure::usage(format!("{asked} can be reached by others"))
                .hint("the demo has no tokens: use 127.0.0.1, or pegboard serve"));
        }
        let system = |error: io::Error| Failure::system(format!("nobody can be served at {asked}: {error}"));
        let mut address = asked;
        for port in asked.port()..=asked.port().saturating_add(MAX_PORTS) {
            address.set_port(port);
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let address = listener.local_addr().map_err(system)?;
                    return Ok(Self { listener, address, asked });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(system(error)),
            }
        }
        Err(system(io::ErrorKind::AddrInUse.into()))
    }

    /// Where MCP clients go.
    pub(super) fn endpoint(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Serves clients and answers commands until somebody wants this program to end.
    pub(super) async fn serve(self, board: &Board, state: Option<&Path>) -> Result<(), Failure> {
        let api = board.api(About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: Vec::new(),
            addresses: vec![self.endpoint()],
        });
        let options = HttpServerOptions::default();
        let clients = serve::router(&board.gateway, None, &options);
        let clients = clients.map_err(|error| Failure::system(error.to_string()))?;
        let router = api::router(&api, Principal::Everybody, &options).merge(clients);
        eprintln!("{}", self.invitation());
        tokio::select! {
            served = server::serve(self.listener, router) => {
                served.map_err(|error| Failure::system(error.to_string()))?;
            }
            () = told() => {}
            () = answer_commands(&api, state) => {}
        }
        board.runtime.shut_down(GRACE).await;
        Ok(())
    }

    /// What to type next.
    fn invitation(&self) -> String {
        let endpoint = self.endpoint();
        let instead = if [0, self.address.port()].contains(&self.asked.port()) {
            String::new()
        } else {
            format!("   (something else listens at {})", self.asked)
        };
        format!(
            "Ready  MCP {endpoint}{instead}\n\
             In another terminal, in a folder without a configuration (Ctrl-C in this one ends it):\n  \
             pegboard ls\n  \
             pegboard call shop/price item=lamp\n  \
             pegboard trace last\n  \
             curl 'http://{}/api/tools?query=note'\n  \
             claude mcp add --transport http demo {endpoint}\n  \
             npx @modelcontextprotocol/inspector --cli {endpoint} --transport http --method tools/list",
            self.address
        )
    }
}
