//! The words of a command line that is being typed.

use clap::builder::{PossibleValue, StyledStr};
use clap::{Arg, ArgAction, Command};

use super::Candidates;

/// Characters at which bash divides words.
const BASH_BREAKS: [char; 2] = ['=', ':'];

/// A command line up to the cursor.
pub(super) struct PartialLine<'c> {
    /// Names of the subcommands.
    path: Vec<&'c str>,
    command: &'c Command,
    /// Values of options by id.
    options: Vec<(&'c str, String)>,
    /// Positional words of the subcommand.
    positionals: Vec<String>,
    /// Option that takes the current word as its value.
    pending: Option<&'c Arg>,
    is_after_dashes: bool,
    current: String,
}

/// Place of the current word.
pub(super) enum WordPlace<'c> {
    /// Name of an option.
    Option,
    /// Value of an option, after a prefix of the word.
    OptionValue { argument: &'c Arg, prefix: String },
    /// Subcommand or positional argument.
    Positional { argument: Option<&'c Arg> },
}

impl<'c> PartialLine<'c> {
    /// Interprets the words after the program's name. The last one is the current word.
    pub(super) fn new(root: &'c Command, words: &[String]) -> Self {
        let mut line = Self {
            path: Vec::new(),
            command: root,
            options: Vec::new(),
            positionals: Vec::new(),
            pending: None,
            is_after_dashes: false,
            current: words.last().cloned().unwrap_or_default(),
        };
        for word in words.iter().take(words.len().saturating_sub(1)) {
            line.accept(word);
        }
        line
    }

    fn accept(&mut self, word: &str) {
        if let Some(option) = self.pending.take() {
            self.options.push((option.get_id().as_str(), word.to_owned()));
            return;
        }
        if self.is_after_dashes {
            self.positionals.push(word.to_owned());
        } else if word == "--" {
            self.is_after_dashes = true;
        } else if let Some(name) = word.strip_prefix("--") {
            let (name, value) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            if let Some(option) = self.command.get_arguments().find(|option| option.get_long() == Some(name))
            {
                match value {
                    Some(value) => self.options.push((option.get_id().as_str(), value.to_owned())),
                    None => self.pending = Some(option).filter(|option| takes_next_word(option)),
                }
            }
        } else if let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.is_empty()) {
            let last = flags.chars().last();
            let option =
                self.command.get_arguments().find(|option| option.get_short() == last && last.is_some());
            self.pending = option.filter(|option| takes_next_word(option));
        } else if let Some(subcommand) =
            self.command.find_subcommand(word).filter(|_| self.positionals.is_empty())
        {
            self.path.push(subcommand.get_name());
            self.command = subcommand;
        } else {
            self.positionals.push(word.to_owned());
        }
    }

    /// Current word, as far as it is typed.
    pub(super) fn current(&self) -> &str {
        &self.current
    }

    /// Names of the subcommands, separated by spaces.
    pub(super) fn command(&self) -> String {
        self.path.join(" ")
    }

    /// Positional words before the current one.
    pub(super) fn positionals(&self) -> &[String] {
        &self.positionals
    }

    /// Values of an option.
    pub(super) fn option_values(&self, id: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(known, _)| *known == id).map(|(_, value)| value.as_str())
    }

    /// Place of the current word.
    pub(super) fn place(&self) -> WordPlace<'c> {
        if let Some(argument) = self.pending {
            return WordPlace::OptionValue { argument, prefix: String::new() };
        }
        if !self.is_after_dashes && self.current.starts_with('-') {
            let named =
                self.current.strip_prefix("--").and_then(|word| word.split_once('=')).map(|(name, _)| name);
            let is_named = |option: &&Arg| option.get_long().is_some() && option.get_long() == named;
            return match self.command.get_arguments().find(is_named) {
                Some(argument) => {
                    let prefix = format!("--{}=", named.unwrap_or_default());
                    WordPlace::OptionValue { argument, prefix }
                }
                None => WordPlace::Option,
            };
        }
        if self.is_after_dashes
            && let Some(argument) = self.command.get_positionals().find(|argument| argument.is_last_set())
        {
            return WordPlace::Positional { argument: Some(argument) };
        }
        let mut arguments = self.command.get_positionals();
        let n_before = self.positionals.len();
        let of_place = self.command.get_positionals().nth(n_before);
        let repeated = || arguments.find(|argument| matches!(argument.get_action(), ArgAction::Append));
        WordPlace::Positional { argument: of_place.or_else(repeated) }
    }

    /// Options of the command.
    pub(super) fn options(&self) -> Candidates {
        let visible = self.command.get_arguments().filter(|option| !option.is_hide_set());
        let named = visible.filter_map(|option| {
            Some((format!("--{}", option.get_long()?), first_sentence(option.get_help())))
        });
        named.collect()
    }

    /// Subcommands of the command.
    pub(super) fn subcommands(&self) -> Candidates {
        if !self.positionals.is_empty() || self.is_after_dashes {
            return Candidates::new();
        }
        let visible = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        visible.map(|command| (command.get_name().to_owned(), first_sentence(command.get_about()))).collect()
    }
}

/// Returns `true` if the value of an option is the next word.
fn takes_next_word(option: &Arg) -> bool {
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    takes_value && !option.is_require_equals_set()
}

fn first_sentence(help: Option<&StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default()
}

/// Values that an argument accepts, if there are only some.
pub(super) fn possible_values(argument: &Arg) -> Candidates {
    let visible = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    visible
        .map(|value: PossibleValue| (value.get_name().to_owned(), first_sentence(value.get_help())))
        .collect()
}

/// Quotes a word for bash, which inserts candidates as they are: servers choose the names and values of arguments.
/// Backslashes protect within no quotation marks, so that marks that are typed before do not matter.
pub(super) fn quoted(word: &str) -> String {
    let mut quoted = String::with_capacity(word.len());
    for character in word.chars() {
        let is_plain = character.is_alphanumeric() || "_-./:=,+@%".contains(character);
        if !is_plain {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

/// Divides a line of bash into words without the first, which is the program. Also tells if a quotation mark is open at
/// the end.
pub(super) fn split(line: &str) -> (Vec<String>, bool) {
    let mut words = vec![String::new()];
    let (mut quote, mut is_begun) = (None, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("there is always a word");
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                is_begun = true;
            }
            (None | Some('"'), '\\') => word.extend(characters.next()),
            (None, _) if character.is_whitespace() => {
                if is_begun || !word.is_empty() {
                    words.push(String::new());
                }
                is_begun = false;
            }
            (_, _) => word.push(character),
        }
    }
    (words.into_iter().skip(1).collect(), quote.is_some())
}

/// Length of the part of a word that bash keeps: up to the last character at which it divides words.
pub(super) fn length_before_break(word: &str) -> usize {
    word.rfind(BASH_BREAKS).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn the_place_of_the_current_word_is_found() {
        let mut command = Cli::command();
        command.build();
        let place = |text: &str| {
            let (words, _) = split(&format!("pegboard {text}"));
            let line = PartialLine::new(&command, &words);
            let place = match line.place() {
                WordPlace::Option => "option".to_owned(),
                WordPlace::OptionValue { argument, prefix } => {
                    format!("value of {} after '{prefix}'", argument.get_id())
                }
                WordPlace::Positional { argument } => {
                    argument.map_or("word".to_owned(), |argument| argument.get_id().to_string())
                }
            };
            format!("{text:<28} {}: {place}", line.command())
        };
        let lines = [
            "",
            "ca",
            "call ",
            "call fi",
            "call a b=",
            "call a b=c d",
            "--config x call ",
            "call --config ",
            "call --output=",
            "-o ",
            "chain run ",
            "connect --http ",
            "connect co",
            "connect --pro",
            "serve -- np",
        ];
        insta::assert_snapshot!(lines.map(place).join("\n"), @"
                                     : word
        ca                           : word
        call                         call: tool
        call fi                      call: tool
        call a b=                    call: arguments
        call a b=c d                 call: arguments
        --config x call              call: tool
        call --config                call: value of config after ''
        call --output=               call: value of output after '--output='
        -o                           : value of output after ''
        chain run                    chain run: chain
        connect --http               connect: client
        connect co                   connect: client
        connect --pro                connect: option
        serve -- np                  serve: command
        ");
    }

    #[test]
    fn words_are_quoted_for_bash() {
        for (word, expected) in [
            ("dev/files:read=1,2", "dev/files:read=1,2"),
            ("größe", "größe"),
            ("$(touch x)", r"\$\(touch\ x\)"),
            ("'`id`' \"~*!\\", r#"\'\`id\`\'\ \"\~\*\!\\"#),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn lines_of_bash_are_divided_into_words() {
        for (line, expected, is_open) in [
            ("pegboard", vec![], false),
            ("pegboard ", vec![""], false),
            ("pegboard call  a", vec!["call", "a"], false),
            ("pegboard call 'a b' ", vec!["call", "a b", ""], false),
            ("pegboard call a\\ b", vec!["call", "a b"], false),
            ("pegboard call \"a 'b", vec!["call", "a 'b"], true),
            ("pegboard call '' x", vec!["call", "", "x"], false),
        ] {
            assert_eq!(split(line), (expected.into_iter().map(str::to_owned).collect(), is_open), "{line}");
        }
        assert_eq!(["a", "a=b", "a:=b", "a="].map(length_before_break), [0, 2, 3, 2]);
    }
}
