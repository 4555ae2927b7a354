//! Many hanging servers and one healthy one.

use std::path::Path;

use pegboard_testkit::measure::answers;

use crate::case::whole_machine;
use crate::processes::testkit;

#[tokio::test(flavor = "multi_thread")]
async fn forty_nine_hanging_servers_do_not_delay_the_fiftieth() {
    let program = Path::new(testkit());
    let _machine = whole_machine().await;
    let measured = answers(Path::new(env!("CARGO_BIN_EXE_pegboard")), program, 3).await.unwrap();
    let [list, first, later] = measured.ratios();
    println!("list {list:.2}, first call {first:.2}, later call {later:.2}: {measured:?}");
    // `pegboard-testkit measure-start` has the strict limit. Listing costs little more than reading the settings.
    assert!(first <= 3.0, "the first call takes {first:.2} times as long: {measured:?}");
    assert!(later <= 3.0, "a later call takes {later:.2} times as long: {measured:?}");
}
