//! `pegboard logs`: what servers said.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::near;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cli::words::{DIM, PLAIN, harmless};
use crate::cli::{Exit, Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk, Events, ServerView, view};

/// How many lines wait to be printed.
const MAX_WAITING: usize = 1_000;

/// Whose log.
#[derive(Args)]
#[command(
    after_help = "A server says what its program writes to standard error, and what it sends as messages of its log. \
    What stands after \"pegboard:\" is what became of it."
)]
pub(crate) struct Logs {
    /// The server: toolbox/server, or less of it while only one can be meant; without it all of them
    server: Option<String>,
    /// Print what is said from now on, too, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// How many lines of each server at most
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 200)]
    lines: usize,
}

/// A line that a server said.
struct Line {
    /// What its server is called here.
    name: String,
    told: Value,
}

/// The servers whose logs are told.
struct Chosen {
    list: Vec<ServerView>,
    /// How wide their names are; 0 if there is one alone, which need not be named.
    width: usize,
    /// The lines that were told: toolboxes may share a server.
    seen: HashSet<(String, Option<u64>, Option<u64>)>,
}

impl Logs {
    /// Refuses what cannot be meant.
    pub(crate) fn check(globals: &Globals) -> Result<(), Failure> {
        if globals.no_daemon {
            return Err(Failure::usage("--no-daemon asks no gateway that runs, and only that one has logs"));
        }
        Ok(())
    }

    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let told = desk.get(&Address::of(&["servers"])).await?;
        let servers: Vec<ServerView> = view(&told, "servers")?;
        let mut servers = Chosen::of(match &self.server {
            None => servers,
            Some(name) => vec![find(&servers, name)?],
        });
        // Whoever follows begins before what was said is read, so that nothing falls in between.
        let following = if self.follow { Some(servers.follow(desk).await?) } else { None };
        let lines = servers.said(desk, self.lines).await?;
        let is_empty = lines.is_empty();
        let format = globals.format_or(Format::Text);
        match (format, following) {
            (Format::Json | Format::Yaml, None) => {
                let lines: Vec<Value> = lines.into_iter().map(|line| line.told).collect();
                print::document(format, &json!({"lines": lines}), String::new);
            }
            (_, following) => {
                for line in &lines {
                    line.print(format, servers.width);
                }
                if let Some(following) = following {
                    return servers.print(globals, following).await;
                }
            }
        }
        if is_empty {
            remark(globals, "Nothing was said yet: servers start when they are used");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// How the command ends: whoever follows a log ends that by hand, and need not be told.
    pub(crate) fn ended(&self, done: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
        match done {
            Err(failure) if self.follow && failure.is_interruption() => Ok(Exit::Interrupted.into()),
            done => done,
        }
    }
}

impl Chosen {
    fn of(servers: Vec<ServerView>) -> Self {
        let mut servers = Self { list: servers, width: 0, seen: HashSet::new() };
        if servers.list.len() > 1 {
            let names = servers.list.iter().map(|server| servers.name(server).len());
            servers.width = names.max().unwrap_or_default();
        }
        servers
    }

    /// What a server is called: with its toolbox if another has one of the same name.
    fn name(&self, server: &ServerView) -> String {
        let is_other = |other: &&ServerView| other.server == server.server;
        if self.list.iter().filter(is_other).count() > 1 { server.address() } else { server.server.clone() }
    }

    /// What they say from now on.
    async fn follow(&self, desk: &Desk) -> Result<Vec<(ServerView, Events)>, Failure> {
        let mut all = Vec::new();
        for server in &self.list {
            let events = desk.follow(&place(server).with("follow", &true).with("lines", &0)).await?;
            all.push((server.clone(), events));
        }
        Ok(all)
    }

    /// What they said, the oldest first.
    async fn said(&mut self, desk: &Desk, n_most: usize) -> Result<Vec<Line>, Failure> {
        let mut lines = Vec::new();
        for server in self.list.clone() {
            let told = desk.get(&place(&server).with("lines", &n_most)).await?;
            let own = told["lines"].as_array().into_iter().flatten();
            lines.extend(own.filter_map(|line| self.line(&server, line.clone())));
        }
        lines.sort_by_key(|line| line.told["at"].as_u64());
        Ok(lines)
    }

    /// A line of a server, unless it was told already.
    fn line(&mut self, server: &ServerView, mut told: Value) -> Option<Line> {
        let key = (server.server.clone(), told["number"].as_u64(), told["at"].as_u64());
        if !self.seen.insert(key) {
            return None;
        }
        told["toolbox"] = server.toolbox.as_str().into();
        told["server"] = server.server.as_str().into();
        Some(Line { name: self.name(server), told })
    }

    /// Prints what they say, until they say no more or nobody reads it any more.
    async fn print(
        mut self,
        globals: &Globals,
        following: Vec<(ServerView, Events)>,
    ) -> Result<ExitCode, Failure> {
        let (sender, mut said) = mpsc::channel(MAX_WAITING);
        let hearing =
            futures_util::future::try_join_all(following.into_iter().map(|(server, mut events)| {
                let sender = sender.clone();
                async move {
                    while let Some(event) = events.next().await? {
                        // Who prints them is there for as long as this is.
                        let _ = sender.send((server.clone(), event)).await;
                    }
                    Ok::<(), Failure>(())
                }
            }));
        let format = globals.format_or(Format::Text);
        let width = self.width;
        let printing = async {
            while let Some((server, event)) = said.recv().await {
                match event.name.as_str() {
                    "line" => {
                        if let Some(line) = self.line(&server, event.data.to_value()) {
                            line.print(format, width);
                        }
                    }
                    "missed" => remark(globals, "Some lines came too fast to be told"),
                    // Others may come to be told.
                    _ => {}
                }
                if print::is_unread() {
                    return;
                }
            }
        };
        tokio::select! {
            heard = hearing => {
                heard?;
                remark(globals, "The gateway has ended");
                Ok(ExitCode::SUCCESS)
            }
            () = printing => Ok(ExitCode::SUCCESS),
        }
    }
}

impl Line {
    fn print(&self, format: Format, width: usize) {
        match format {
            Format::Text => print::text(&self.text(width)),
            Format::Json | Format::Ndjson => print::text(&self.told.to_string()),
            Format::Yaml => print::document(format, &[&self.told], String::new),
        }
    }

    fn text(&self, width: usize) -> String {
        let text = harmless(self.told["text"].as_str().unwrap_or_default());
        let level = self.told["level"].as_str().map(|level| format!("{level}: ")).unwrap_or_default();
        let said = match self.told["stream"].as_str() {
            Some("pegboard") => format!("{DIM}pegboard: {text}{PLAIN}"),
            _ => format!("{level}{text}"),
        };
        if width == 0 { said } else { format!("{DIM}{:<width$}{PLAIN}  {said}", self.name) }
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
        let line = |told: Value| Line { name: "jira".to_owned(), told };
        let said = line(json!({"stream": "message", "level": "error", "text": "no\u{1b}[1m key"}));
        let noted = line(json!({"stream": "pegboard", "text": "started"}));
        let all = [said.text(0), said.text(6), noted.text(6)].join("\n");
        insta::assert_snapshot!(anstream::adapter::strip_str(&all), @"
        error: no[1m key
        jira    error: no[1m key
        jira    pegboard: started
        ");
    }

    #[test]
    fn a_server_that_toolboxes_share_says_everything_once() {
        let told = json!({"servers": [{"toolbox": "dev", "server": "github"}, {"toolbox": "ops", "server": "github"}]});
        let mut servers = Chosen::of(view(&told, "servers").unwrap());
        let line = json!({"number": 1, "at": 7, "text": "hello"});
        let [dev, ops] = [0, 1].map(|place: usize| servers.list[place].clone());
        let first = servers.line(&dev, line.clone()).unwrap();
        assert_eq!((first.name.as_str(), &first.told["toolbox"]), ("dev/github", &json!("dev")));
        assert!(servers.line(&ops, line).is_none());
    }
}
