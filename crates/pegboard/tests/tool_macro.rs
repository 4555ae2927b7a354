//! What `#[tool]` makes of a function.

#![expect(clippy::unnecessary_wraps, clippy::unused_async, reason = "the signature is what matters here")]

use std::collections::BTreeMap;
use std::fmt;

use pegboard::prelude::*;

/// Convert a temperature to Fahrenheit.
#[tool(tags("units"), read_only)]
async fn fahrenheit(
    /// Degrees Celsius
    celsius: f64,
    /// Decimals to keep; two when absent
    places: Option<u8>,
) -> Result<f64> {
    std::future::ready(()).await;
    let scale = 10f64.powi(places.unwrap_or(2).into());
    Ok(((celsius * 9.0 / 5.0 + 32.0) * scale).round() / scale)
}

/// The outcome of a call through a registry that holds nothing else.
async fn call(entry: ToolEntry, arguments: Value) -> Outcome {
    let name = entry.name().to_owned();
    ToolRegistry::new().with([entry]).expect("a valid name").invoke(&name, arguments).await
}

/// The answer to a call that must go well.
async fn answer(entry: ToolEntry, arguments: Value) -> Value {
    let outcome = call(entry, arguments).await;
    assert_eq!((outcome.status, outcome.errors), (Status::Success, vec![]));
    outcome.data
}

/// The first thing that is wrong with a call that must not go well.
async fn error(entry: ToolEntry, arguments: Value) -> String {
    let outcome = call(entry, arguments).await;
    assert_eq!(outcome.status, Status::Failure);
    outcome.errors[0].clone()
}

fn entry<const N: usize>(tools: [ToolEntry; N]) -> ToolEntry {
    tools.into_iter().next().expect("a list of one")
}

mod the_function {
    use super::*;

    #[tokio::test]
    async fn it_is_still_called_directly() {
        assert_eq!(fahrenheit(100.0, None).await, Ok(212.0));
    }

    #[tokio::test]
    async fn it_is_called_by_name() {
        let registry = ToolRegistry::new().with(tools![fahrenheit]).unwrap();
        let outcome = registry.invoke("fahrenheit", json!({"celsius": 21.46, "places": 1})).await;
        assert_eq!(outcome.data, json!(70.6));
    }

    #[tokio::test]
    async fn it_need_not_be_async() {
        /// The sum of two numbers.
        #[tool]
        fn add(a: i64, b: i64) -> i64 {
            a + b
        }
        assert_eq!(add(1, 2), 3);
        assert_eq!(answer(entry(tools![add]), json!({"a": 1, "b": 2})).await, 3);
    }

    #[tokio::test]
    async fn it_keeps_its_attributes() {
        /// Always the same.
        #[tool]
        #[must_use]
        #[cfg(true)]
        #[deprecated = "for this test"]
        #[inline]
        fn constant() -> u8 {
            7
        }
        assert_eq!(answer(entry(tools![constant]), json!({})).await, 7);
    }

    #[test]
    fn it_is_gone_with_its_tool_where_it_does_not_belong() {
        /// Absent.
        #[tool]
        #[cfg(false)]
        fn absent() {}

        #[expect(non_camel_case_types, reason = "the name of the tool")]
        struct absent;
        let _: absent = absent;
    }
}

mod places {
    use super::*;

    mod weather {
        use super::*;

        /// The weather now.
        #[tool]
        pub(super) fn now() -> String {
            "fair".to_owned()
        }

        pub(super) mod stations {
            use super::*;

            /// How many stations there are.
            #[tool]
            pub(crate) fn count() -> usize {
                2
            }

            /// How many are silent.
            #[tool]
            pub(in super::super) fn silent() -> usize {
                0
            }
        }
    }

    #[tokio::test]
    async fn a_tool_of_a_module_is_named_by_its_path() {
        assert_eq!(answer(entry(tools![weather::now]), json!({})).await, "fair");
        let tools = tools![weather::now, weather::stations::count, self::weather::stations::silent];
        assert_eq!(tools.map(|entry| entry.name().to_owned()), ["now", "count", "silent"]);
        assert_eq!(
            (weather::now(), weather::stations::count(), weather::stations::silent()),
            ("fair".to_owned(), 2, 0)
        );
    }

    #[test]
    fn a_tool_is_imported_like_a_function() {
        use weather::stations::count;
        use weather::stations::silent as quiet;

        assert_eq!(tools![count, quiet].map(|entry| entry.name().to_owned()), ["count", "silent"]);
        assert_eq!(count() + quiet(), 2);
    }

    #[tokio::test]
    async fn a_tool_inside_a_function_sees_what_is_around_it() {
        #[derive(Deserialize, JsonSchema)]
        struct Inner {
            n: u8,
        }
        fn seven() -> u8 {
            7
        }
        /// Inside.
        #[tool]
        fn inside(inner: Inner, #[serde(default = "seven")] other: u8) -> u8 {
            inner.n + other
        }
        assert_eq!(answer(entry(tools![inside]), json!({"inner": {"n": 1}})).await, 8);
    }

    #[tokio::test]
    async fn a_tool_may_come_out_of_another_macro() {
        macro_rules! constants {
            ($($name:ident: $ty:ty = $value:expr, $description:literal;)*) => {$(
                #[tool(description = $description)]
                fn $name() -> $ty {
                    $value
                }
            )*};
        }
        constants! {
            pi: f64 = 3.0, "Almost pi.";
            unit: () = (), "Nothing.";
            zero: Result<u8> = Ok(0), "Not one.";
        }
        assert_eq!(tools![pi, unit].map(|entry| entry.description().to_owned()), ["Almost pi.", "Nothing."]);
        assert!(entry(tools![unit]).output_schema().is_empty());
        assert_eq!(answer(entry(tools![zero]), json!({})).await, 0);
    }

    mod toolkit {
        pub(crate) use ::pegboard as library;
    }

    macro_rules! constant {
        ($name:ident = $value:literal) => {
            #[doc = concat!("Always ", $value, ".")]
            #[tool(crate = $crate::places::toolkit::library)]
            fn $name() -> Result<u8> {
                Ok($value)
            }
        };
    }

    #[tokio::test]
    async fn pegboard_may_be_found_elsewhere() {
        /// Found by a path.
        #[tool(crate = toolkit::library)]
        fn same(n: u8) -> u8 {
            n
        }
        constant!(seven = 7);

        assert_eq!(answer(entry(tools![same]), json!({"n": 7})).await, 7);
        assert_eq!(answer(entry(tools![seven]), json!({})).await, 7);
        assert_eq!(entry(tools![seven]).description(), "Always 7.");
    }

    #[tokio::test]
    async fn names_in_the_code_around_do_not_matter() {
        #![expect(dead_code, reason = "they are here to be in the way")]

        struct Option;
        struct Result;
        struct Schema;
        struct ToolEntry;
        struct ToolError;
        struct String;
        mod core {}
        mod pegboard {}
        mod serde {}
        fn error() {}

        #[derive(Deserialize, Serialize, JsonSchema)]
        #[serde(crate = "::pegboard::serde")]
        struct Arguments {
            n: u8,
        }

        /// Arguments of arguments.
        #[tool]
        fn arguments(arguments: Arguments, error: u8) -> std::result::Result<u8, u8> {
            if error == 0 { Ok(arguments.n) } else { Err(error) }
        }
        let input = json!({"arguments": {"n": 7}, "error": 0});
        assert_eq!(answer(super::entry(tools![arguments]), input).await, 7);
    }
}

mod words {
    use super::*;

    #[test]
    fn a_doc_comment_is_the_description() {
        assert_eq!(entry(tools![fahrenheit]).description(), "Convert a temperature to Fahrenheit.");
    }

    #[test]
    fn paragraphs_and_lists_are_kept() {
        ///  First line
        #[doc = " second line.   "]
        ///
        /// - one
        ///   - two
        ///
        #[tool]
        fn described() {}
        insta::assert_snapshot!(entry(tools![described]).description(), @r"
        First line
        second line.

        - one
          - two
        ");
    }

    #[test]
    fn a_description_may_live_in_a_file() {
        #[tool(description = include_str!("ui/description.md"))]
        fn by_setting() {}

        /// First line
        /// second line
        #[doc = include_str!("ui/description.md")]
        #[tool]
        fn by_doc() {}

        let text = include_str!("ui/description.md").trim();
        assert_eq!(entry(tools![by_setting]).description(), text);
        assert_eq!(entry(tools![by_doc]).description(), format!("First line\nsecond line\n{text}"));
    }

    #[test]
    fn a_tool_is_named_after_its_function() {
        /// Raw.
        #[tool]
        fn r#match() {}
        assert_eq!(entry(tools![r#match]).name(), "match");
    }

    #[test]
    fn settings_overrule_the_function() {
        /// For readers of the code.
        #[tool(name = "units/kelvin", title = "To Kelvin", description = "For models.")]
        fn kelvin(celsius: f64) -> f64 {
            celsius + 273.15
        }
        let entry = entry(tools![kelvin]);
        assert_eq!((entry.name(), entry.title()), ("units/kelvin", Some("To Kelvin")));
        assert_eq!(entry.description(), "For models.");
    }

    #[test]
    fn tags_are_kept_in_order() {
        /// In parentheses.
        #[tool(tags("b", "a",))]
        fn in_parentheses() {}
        /// In brackets.
        #[tool(tags = ["b", "a"])]
        fn in_brackets() {}
        for entry in tools![in_parentheses, in_brackets] {
            assert_eq!(entry.tags(), ["b", "a"]);
        }
    }

    #[test]
    fn flags_are_annotations() {
        /// Some.
        #[tool(read_only, open_world = false)]
        fn some() {}
        /// All.
        #[tool(read_only = false, destructive = true, idempotent, open_world)]
        fn all() {}
        /// None.
        #[tool]
        fn none() {}

        let annotations = tools![some, all, none].map(|entry| json!(entry.annotations()));
        assert_eq!(annotations[0], json!({"readOnlyHint": true, "openWorldHint": false}));
        let all = json!({
            "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true,
        });
        assert_eq!(annotations[1], all);
        assert_eq!(annotations[2], json!({}));
    }
}

mod parameters {
    use super::*;

    #[test]
    fn they_are_the_input_schema() {
        let schema = entry(tools![fahrenheit]).input_schema().clone();
        insta::assert_snapshot!(serde_json::to_string_pretty(&schema).unwrap(), @r#"
        {
          "type": "object",
          "additionalProperties": false,
          "properties": {
            "celsius": {
              "type": "number",
              "description": "Degrees Celsius"
            },
            "places": {
              "type": "integer",
              "minimum": 0,
              "maximum": 255,
              "description": "Decimals to keep; two when absent"
            }
          },
          "required": [
            "celsius"
          ]
        }
        "#);
    }

    #[tokio::test]
    async fn an_optional_one_may_be_left_out() {
        assert_eq!(answer(entry(tools![fahrenheit]), json!({"celsius": 21.5})).await, 70.7);
    }

    #[tokio::test]
    async fn others_may_not() {
        let error = error(entry(tools![fahrenheit]), json!({})).await;
        assert_eq!(error, "$.celsius: required field missing");
    }

    #[tokio::test]
    async fn an_unknown_key_is_refused() {
        let error = error(entry(tools![fahrenheit]), json!({"celsius": 1, "colour": "red"})).await;
        assert_eq!(error, "$.colour: additional property not allowed");
    }

    #[tokio::test]
    async fn arguments_are_an_object_even_when_nobody_checks() {
        let registry = ToolRegistry::new().with(tools![fahrenheit]).unwrap();
        let outcome = registry.invoke_unchecked("fahrenheit", 7).await;
        assert_eq!(outcome.errors, ["$: invalid type: integer `7`, expected an object of arguments"]);
    }

    #[tokio::test]
    async fn there_may_be_none() {
        /// The answer.
        #[tool]
        fn answer_to_everything() -> u8 {
            42
        }
        let tool = || entry(tools![answer_to_everything]);
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        assert_eq!(*tool().input_schema().as_json(), schema);
        assert_eq!(answer(tool(), json!({})).await, 42);
        assert_eq!(answer(tool(), Value::Null).await, 42, "no arguments are an empty object");
        assert_eq!(error(tool(), json!({"n": 1})).await, "$.n: additional property not allowed");
    }

    #[tokio::test]
    async fn they_may_be_mutable_and_have_raw_names() {
        /// Count down.
        #[tool]
        fn count_down(mut r#type: u8) -> u8 {
            r#type -= 1;
            r#type
        }
        assert_eq!(answer(entry(tools![count_down]), json!({"type": 3})).await, 2);
    }

    #[tokio::test]
    async fn they_take_the_attributes_of_fields() {
        /// Roll dice.
        #[tool]
        fn roll(
            #[schemars(range(min = 1, max = 5))] dice: u8,
            #[serde(default)] bonus: u8,
            #[serde(rename = "in")]
            #[allow(unused_variables)]
            place: Option<String>,
        ) -> u8 {
            dice + bonus
        }
        let tool = || entry(tools![roll]);
        let properties = json!({
            "dice": {"type": "integer", "minimum": 1, "maximum": 5},
            "bonus": {"type": "integer", "minimum": 0, "maximum": 255, "default": 0},
            "in": {"type": "string"},
        });
        assert_eq!(tool().input_schema().as_json()["properties"], properties);
        assert_eq!(tool().input_schema().as_json()["required"], json!(["dice"]));
        assert_eq!(answer(tool(), json!({"dice": 5, "in": "here"})).await, 5);
        assert_eq!(error(tool(), json!({"dice": 6})).await, "$.dice: value 6 > maximum 5");
    }

    #[derive(Deserialize, JsonSchema)]
    struct Point {
        /// East
        x: i64,
        y: i64,
    }

    /// How many streets away a corner is.
    #[tool]
    fn distance(#[arguments] Point { x, y }: Point) -> i64 {
        x.abs() + y.abs()
    }

    #[tokio::test]
    async fn one_may_take_all_arguments() {
        let tool = || entry(tools![distance]);
        let east = json!({"description": "East", "type": "integer"});
        assert_eq!(tool().input_schema().as_json()["properties"]["x"], east);
        assert_eq!(answer(tool(), json!({"x": -3, "y": 4})).await, 7);
        assert_eq!(distance(Point { x: -3, y: 4 }), 7);
    }

    #[tokio::test]
    async fn one_may_take_whatever_comes() {
        /// Its argument again.
        #[tool]
        fn echo(#[arguments] value: Value) -> Value {
            value
        }
        assert!(entry(tools![echo]).input_schema().is_empty());
        assert_eq!(answer(entry(tools![echo]), json!([1])).await, json!([1]));
    }

    #[tokio::test]
    async fn their_schema_may_be_given() {
        #[derive(Deserialize)]
        struct Unschematic(u8);

        /// Twice a number.
        #[tool(input_schema = json!({"type": "object", "required": ["n"]}))]
        fn double(n: Unschematic) -> u8 {
            n.0 * 2
        }
        let tool = || entry(tools![double]);
        assert_eq!(*tool().input_schema().as_json(), json!({"type": "object", "required": ["n"]}));
        assert_eq!(answer(tool(), json!({"n": 21})).await, 42);
        assert_eq!(error(tool(), json!({"n": 1, "m": 2})).await, "$: unknown field `m`, expected `n`");
    }
}

mod answers {
    use super::*;

    /// An error that can say what it is and nothing else, and more of it when asked for more.
    struct Chained;

    impl fmt::Display for Chained {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if f.alternate() { "boom: no fuse" } else { "boom" })
        }
    }

    #[tokio::test]
    async fn an_error_is_a_failure_in_its_own_words() {
        /// Fail.
        #[tool]
        async fn fail() -> Result<u8> {
            Err(ToolError::new("boom"))
        }
        let outcome = call(entry(tools![fail]), json!({})).await;
        assert_eq!(outcome.message, "Tool 'fail' raised an exception: boom");
    }

    #[tokio::test]
    async fn an_error_only_needs_to_be_displayed() {
        /// Fail.
        #[tool]
        fn fail() -> Result<u8, Chained> {
            Err(Chained)
        }
        assert_eq!(error(entry(tools![fail]), json!({})).await, "boom: no fuse");
    }

    #[tokio::test]
    async fn every_path_to_a_result_is_understood() {
        mod anyhow {
            pub(super) type Result<T, E = super::Chained> = std::result::Result<T, E>;
        }
        /// Of another library.
        #[tool]
        fn theirs(fails: bool) -> anyhow::Result<String> {
            if fails { Err(Chained) } else { Ok("fine".to_owned()) }
        }
        /// Of the standard library.
        #[tool]
        fn standard() -> std::io::Result<String> {
            Err(std::io::Error::other("disk full"))
        }
        assert_eq!(answer(entry(tools![theirs]), json!({"fails": false})).await, "fine");
        assert_eq!(error(entry(tools![theirs]), json!({"fails": true})).await, "boom: no fuse");
        assert_eq!(*entry(tools![theirs]).output_schema().as_json(), json!({"type": "string"}));
        assert_eq!(error(entry(tools![standard]), json!({})).await, "disk full");
    }

    #[test]
    fn they_are_the_output_schema() {
        /// Word counts.
        #[tool]
        fn count(text: String) -> BTreeMap<String, usize> {
            BTreeMap::from([(text, 1)])
        }
        let schema = json!({"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}});
        assert_eq!(*entry(tools![count]).output_schema().as_json(), schema);
    }

    #[tokio::test]
    async fn nothing_is_an_answer_without_a_schema() {
        /// Nothing.
        #[tool]
        fn nothing() {}
        /// Nothing, said aloud.
        #[tool]
        async fn unit() -> () {
            std::future::ready(()).await;
        }
        /// Nothing, if it goes well.
        #[tool]
        fn fallible() -> Result<()> {
            Ok(())
        }
        for entry in tools![nothing, unit, fallible] {
            assert!(entry.output_schema().is_empty());
            assert_eq!(answer(entry, json!({})).await, Value::Null);
        }
    }

    #[tokio::test]
    async fn their_schema_may_be_given() {
        #[derive(Serialize)]
        struct Unschematic(u8);

        /// A number.
        #[tool(output_schema = Schema::with_rules(json!({"type": "integer"}), Rules::COMPAT))]
        fn number() -> Result<Unschematic> {
            Ok(Unschematic(7))
        }
        assert_eq!(*entry(tools![number]).output_schema().as_json(), json!({"type": "integer"}));
        assert_eq!(answer(entry(tools![number]), json!({})).await, 7);
    }
}
