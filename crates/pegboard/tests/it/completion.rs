//! Completions in a real shell.

use std::process::Command;

use insta::assert_snapshot;

use crate::files::stage::Stage;

const TOOLS: &str = r#"
restTools:
  order:
    description: Order a lamp
    url: https://example.com/${parameters.lamp}
    parametersSchema:
      type: object
      required: [lamp]
      properties:
        lamp: {type: string, enum: ["$(touch ran)", "*", "a b", "it's", plain, "two  spaces"]}
        "`touch ran`": {type: string}
"#;

/// Completes a line in bash. Returns the words, as they are inserted and as the shell reads them.
fn completed(stage: &Stage, line: &str) -> String {
    let script = r#"
        source <("$PROGRAM" completions bash)
        COMP_WORDS=("$PROGRAM") COMP_LINE=$1 COMP_POINT=${#1}
        _pegboard
        for word in "${COMPREPLY[@]}"; do
            printf '%s  ' "$word"
            eval "printf '<%s>\n' $word"
        done
    "#;
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "bash", line]).current_dir(stage.project()).env_clear();
    command
        .env("PROGRAM", env!("CARGO_BIN_EXE_pegboard"))
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", stage.home());
    stage.told(&mut command)
}

#[test]
fn bash_inserts_the_names_and_values_of_servers_as_words() {
    let stage = Stage::new();
    stage.write("~/.config/pegboard/pegboard.yaml", TOOLS);
    assert_snapshot!(completed(&stage, "pegboard call rest/order lamp="), @r"
    \$\(touch\ ran\)  <$(touch ran)>
    \*  <*>
    a\ b  <a b>
    it\'s  <it's>
    plain  <plain>
    ");
    // What is typed within quotation marks is left to the user.
    assert_snapshot!(completed(&stage, "pegboard call rest/order 'lamp="), @"plain  <plain>");
    assert_snapshot!(completed(&stage, "pegboard call rest/order "), @r"
    \`touch\ ran\`=  <`touch ran`=>
    lamp=  <lamp=>
    ");
    assert!(!stage.path("ran").exists());
}
