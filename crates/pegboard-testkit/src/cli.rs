//! Command line of the testkit: runs the fixture (`stdio`, `http PORT`), the explorer (`client…`), a scripted server
//! (`scripted…`), a hostile server (`hostile…`) or a scripted model (`model-server PORT SCRIPT`), or measures a gateway
//! (`measure-start GATEWAY`, `measure-commands GATEWAY`, `measure-calls GATEWAY BASELINE`, `measure-context GATEWAY`).

use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use pegboard_wire::RawJson;
use pegboard_wire::client::Era;
use pegboard_wire::http;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::ServiceServer;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use tokio::net::TcpListener;

use crate::echo_server::{OBJECTS, echo_server, office_server};
use crate::explorer::{ExplorePlan, ServerTarget};
use crate::fixture::Fixture;
use crate::hostile_text::hostile_text_server;
use crate::model_server::{self, Script};
use crate::{explorer, serve};
#[cfg(unix)]
use crate::{hostile, measure, measure::call_cost, measure::context_cost, scripted_server};

/// Number of measurements per command.
#[cfg(unix)]
const MEASURED_COMMANDS: usize = 31;

/// Number of measured starts.
#[cfg(unix)]
const MEASURED_ROUNDS: usize = 9;

const USAGE: &str = "usage: pegboard-testkit stdio [--era session|stateless] | http PORT [--era session|stateless] | client-scenarios
     | client URL | client-sse URL | client-ws URL | client-stdio PROGRAM ARGUMENT…
     | scripted NAME TOOLS SOCKET | hostile MODE | hostile-http MODE [PORT] | measure-start GATEWAY | measure-commands GATEWAY
     | measure-calls GATEWAY BASELINE [--update REASON] [SCENARIO]… | measure-context GATEWAY
     | office-server FIRST_OBJECT TOOLS | echo-server | hostile-text | model-server PORT SCRIPT
Options of the `client…` commands, before the URL or program:
  --era session|stateless   use this era instead of negotiating it
  --call TOOL ARGUMENTS     call this tool with JSON arguments; may be repeated";

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Hostile servers run without an async runtime, which could get in their way.
fn dispatch(arguments: &[&str]) -> Result<()> {
    match arguments {
        #[cfg(unix)]
        ["scripted", name, tools, socket] => scripted_server::serve(name, tools, socket.as_ref()),
        #[cfg(unix)]
        ["hostile", mode] => hostile::stdio::serve(mode.parse()?),
        #[cfg(unix)]
        ["hostile-child", role @ ..] => hostile::stdio::run_child(role),
        #[cfg(unix)]
        ["hostile-http", mode] => hostile::http::serve(mode.parse()?, 0, hostile::http::print_address),
        #[cfg(unix)]
        ["hostile-http", mode, port] => {
            let port = port.parse().map_err(Error::other)?;
            hostile::http::serve(mode.parse()?, port, hostile::http::print_address)
        }
        arguments => tokio::runtime::Runtime::new()?.block_on(run(arguments)),
    }
}

async fn run(arguments: &[&str]) -> Result<()> {
    let server = ServiceServer::new(Arc::new(Fixture::new()));
    let (server, arguments) = match arguments {
        [mode @ ("stdio" | "http"), rest @ .., "--era", "session"] => {
            (server.serving_only(Era::Session), [&[*mode], rest].concat())
        }
        [mode @ ("stdio" | "http"), rest @ .., "--era", "stateless"] => {
            (server.serving_only(Era::Stateless), [&[*mode], rest].concat())
        }
        arguments => (server, arguments.to_vec()),
    };
    match arguments.as_slice() {
        ["stdio"] => serve_stdio(server).await,
        ["http", port] => {
            let port = port.parse().map_err(Error::other)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            println!("http://{}/mcp", listener.local_addr()?);
            http::server::serve(listener, serve::all_transports(&server, &HttpServerOptions::default())).await
        }
        ["model-server", port, script] => {
            let port = port.parse().map_err(Error::other)?;
            let script = std::fs::read_to_string(script)
                .map_err(|error| Error::new(error.kind(), format!("{script}: {error}")))?;
            let script = Script::parse(&script).map_err(Error::other)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            println!("http://{}/v1", listener.local_addr()?);
            model_server::serve(listener, script).await
        }
        ["echo-server"] => serve_stdio(echo_server(0)).await,
        ["office-server", first, n_tools] => {
            let [first, n_tools] =
                [first, n_tools].map(|number| number.parse::<usize>().map_err(Error::other));
            serve_stdio(office_server(&OBJECTS[first?.min(OBJECTS.len())..], n_tools?)).await
        }
        ["hostile-text"] => serve_stdio(hostile_text_server()).await,
        #[cfg(unix)]
        [what, gateway, rest @ ..] if what.starts_with("measure-") => {
            run_measurement(what, gateway.as_ref(), rest).await
        }
        ["client-scenarios"] => {
            for scenario in explorer::SCENARIOS {
                println!("{scenario}");
            }
            Ok(())
        }
        [mode, rest @ ..] if mode.starts_with("client") => explore(mode, rest).await,
        _ => Err(Error::other(USAGE)),
    }
}

/// Runs a measurement of a gateway.
#[cfg(unix)]
async fn run_measurement(what: &str, gateway: &Path, rest: &[&str]) -> Result<()> {
    match (what, rest) {
        ("measure-calls", [file, "--update", reason, names @ ..]) => {
            call_cost::update(gateway, file.as_ref(), reason, names).await
        }
        ("measure-calls", [file, names @ ..]) => call_cost::check(gateway, file.as_ref(), names).await,
        ("measure-context", []) => {
            print!("{}", context_cost::table(gateway, &std::env::current_exe()?).await?);
            Ok(())
        }
        ("measure-start", []) => measure(gateway).await,
        ("measure-commands", []) => {
            for taken in measure::commands(gateway, MEASURED_COMMANDS)? {
                println!("{:<8} {:6.1} ms", taken.command, taken.median.as_secs_f64() * 1_000.0);
            }
            Ok(())
        }
        _ => Err(Error::other(USAGE)),
    }
}

async fn serve_stdio(server: ServiceServer) -> Result<()> {
    let (transport, pump) = line_transport(tokio::io::stdin(), tokio::io::stdout(), InputLimits::server());
    server.serve(transport).await;
    let _ = pump.await;
    Ok(())
}

/// Prints response times with one server, and with forty-nine more that hang.
#[cfg(unix)]
async fn measure(gateway: &Path) -> Result<()> {
    let measured = measure::answers(gateway, &std::env::current_exe()?, MEASURED_ROUNDS).await?;
    let [list, first, later] = measured.ratios();
    println!("alone:      {:?}\nunder load: {:?}", measured.alone, measured.under_load);
    println!("ratios:     list {list:.2}, first call {first:.2}, later call {later:.2}");
    Ok(())
}

async fn explore(mode: &str, mut rest: &[&str]) -> Result<()> {
    let (mut era, mut calls) = (None, Vec::new());
    loop {
        rest = match rest {
            ["--era", "session", rest @ ..] => {
                era = Some(Era::Session);
                rest
            }
            ["--era", "stateless", rest @ ..] => {
                era = Some(Era::Stateless);
                rest
            }
            ["--call", tool, arguments, rest @ ..] => {
                let arguments = arguments.as_bytes().to_vec().into();
                calls.push(((*tool).to_owned(), RawJson::parse(arguments).map_err(Error::other)?));
                rest
            }
            _ => break,
        };
    }
    let target = match (mode, rest) {
        ("client", [url]) => ServerTarget::Http((*url).to_owned()),
        ("client-sse", [url]) => ServerTarget::Sse((*url).to_owned()),
        ("client-ws", [url]) => ServerTarget::WebSocket((*url).to_owned()),
        ("client-stdio", [program, arguments @ ..]) => {
            ServerTarget::Stdio((*program).to_owned(), arguments.iter().copied().map(str::to_owned).collect())
        }
        _ => return Err(Error::other(USAGE)),
    };
    let plan = if calls.is_empty() {
        ExplorePlan::Everything(conformance_context())
    } else {
        ExplorePlan::Calls(calls)
    };
    explorer::explore(&target, era, plan).await.map_err(Error::other)
}

/// Returns the context of the conformance suite, if it started this process.
fn conformance_context() -> serde_json::Value {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    serde_json::from_str(&context).unwrap_or_default()
}
