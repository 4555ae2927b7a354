//! `pegboard logs`: what servers said.

use std::process::ExitCode;

use clap::Args;
use pegboard::config::near;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::cli::words::{DIM, PLAIN, harmless};
use crate::cli::{Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk, ServerView, view};

/// How many lines wait to be printed.
const MAX_WAITING: usize = 1_000;

/// Whose log.
#[derive(Args)]
pub(crate) struct Logs {
    /// The server: toolbox/server, or less of it while only one can be meant; without it all of them
    server: Option<String>,
    /// Print what is said from now on, too
    #[arg(long, short)]
    follow: bool,
    /// How many lines of each server at most
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 200)]
    lines: usize,
}

/// A line that a server said.
struct Line {
    server: String,
    told: Value,
}

impl Logs {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let told = desk.get(&Address::of(&["servers"])).await?;
        let servers: Vec<ServerView> = view(&told, "servers")?;
        let meant = match &self.server {
            None => servers,
            Some(name) => vec![find(&servers, name)?],
        };
        let width = meant.iter().map(|server| server.server.len()).max().unwrap_or_default();
        let width = if meant.len() > 1 { width } else { 0 };
        let mut lines = Vec::new();
        for server in &meant {
            let address = place(server).with("lines", &self.lines);
            let told = desk.get(&address).await?;
            let own = told["lines"].as_array().into_iter().flatten();
            lines.extend(own.map(|line| Line { server: server.server.clone(), told: line.clone() }));
        }
        lines.sort_by_key(|line| line.told["at"].as_u64());
        for line in &lines {
            line.print(globals, width);
        }
        if self.follow {
            return follow(globals, desk, &meant, width).await;
        }
        if lines.is_empty() {
            remark(globals, "Nothing was said yet");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints what servers say from now on.
async fn follow(
    globals: &Globals,
    desk: &Desk,
    servers: &[ServerView],
    width: usize,
) -> Result<ExitCode, Failure> {
    let (sender, mut lines) = mpsc::channel(MAX_WAITING);
    let following = futures_util::future::try_join_all(servers.iter().map(|server| {
        let sender = sender.clone();
        async move {
            let mut events = desk.follow(&place(server).with("follow", &true).with("lines", &0)).await?;
            while let Some(event) = events.next().await? {
                if event.name == "line" {
                    let line = Line { server: server.server.clone(), told: event.data.to_value() };
                    // Who prints them is there for as long as this is.
                    let _ = sender.send(line).await;
                }
            }
            Ok::<(), Failure>(())
        }
    }));
    let printing = async {
        while let Some(line) = lines.recv().await {
            line.print(globals, width);
        }
    };
    tokio::select! {
        followed = following => followed.map(|_| ExitCode::SUCCESS),
        () = printing => Ok(ExitCode::SUCCESS),
    }
}

impl Line {
    fn print(&self, globals: &Globals, width: usize) {
        match globals.format_or(Format::Text) {
            Format::Text | Format::Yaml => print::text(&self.text(width)),
            Format::Json | Format::Ndjson => {
                let mut line = self.told.clone();
                line["server"] = self.server.as_str().into();
                print::text(&line.to_string());
            }
        }
    }

    fn text(&self, width: usize) -> String {
        let text = harmless(self.told["text"].as_str().unwrap_or_default());
        let level = self.told["level"].as_str().map(|level| format!("{level}: ")).unwrap_or_default();
        if width == 0 {
            format!("{level}{text}")
        } else {
            format!("{DIM}{:<width$}{PLAIN}  {level}{text}", self.server)
        }
    }
}

fn place(server: &ServerView) -> Address {
    Address::of(&["servers", &server.toolbox, &server.server, "logs"])
}

/// The one server that a name means.
fn find(servers: &[ServerView], name: &str) -> Result<ServerView, Failure> {
    let meant: Vec<&ServerView> =
        servers.iter().filter(|server| server.server == name || server.address() == name).collect();
    match meant.as_slice() {
        [server] => Ok((*server).clone()),
        [] => {
            let failure = Failure::not_found("unknown_server", format!("there is no server '{name}'"));
            let names = servers.iter().map(|server| server.server.as_str());
            Err(match near(name, names) {
                Some(meant) => failure.hint(format!("did you mean {meant}?")),
                None => failure.hint("pegboard ls shows all"),
            })
        }
        several => {
            let several: Vec<String> = several.iter().map(|server| server.address()).collect();
            let message = format!("'{name}' may be {}", several.join(" or "));
            Err(Failure::not_found("unknown_server", message).hint("name one of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_found_by_as_much_of_its_name_as_it_takes() {
        let told = json!({"servers": [
            {"toolbox": "dev", "server": "github"}, {"toolbox": "ops", "server": "github"}, {"toolbox": "ops", "server": "jira"},
        ]});
        let servers: Vec<ServerView> = view(&told, "servers").unwrap();
        let found = |name: &str| match find(&servers, name) {
            Ok(server) => server.address(),
            Err(failure) => failure.text(),
        };
        insta::assert_snapshot!(["jira", "ops/github", "github", "jria"].map(found).join("\n"), @"
        ops/jira
        ops/github
        error[unknown_server]: 'github' may be dev/github or ops/github
          help: name one of them
        error[unknown_server]: there is no server 'jria'
          help: did you mean jira?
        ");
    }

    #[test]
    fn of_several_servers_each_line_says_whose_it_is() {
        let line = Line {
            server: "jira".to_owned(),
            told: json!({"at": 1, "stream": "log", "level": "error", "text": "no\u{1b}[1m key"}),
        };
        let both = format!("{}\n{}", line.text(0), line.text(6));
        insta::assert_snapshot!(anstream::adapter::strip_str(&both), @"
        error: no[1m key
        jira    error: no[1m key
        ");
    }
}
