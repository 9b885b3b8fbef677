"""What the pages look like, beyond what Streamlit gives them."""

from fdkvc.charts.theme import DARK, LIGHT, MET, UNMET

# The page's head takes the strip in which Streamlit has its menu, and stays in sight. Where that
# strip has the button of the closed sidebar, the head stands below it and scrolls away.
_FRAME = """
.stMainBlockContainer {padding: 0 2rem 3rem; max-width: 1700px;}
.stMainBlockContainer > .stVerticalBlock {gap: .75rem;}
[data-testid="stHeader"] {background: none;}
[data-testid="stHeader"], [data-testid="stHeader"] div {pointer-events: none;}
[data-testid="stHeader"] button {pointer-events: auto;}
.stLayoutWrapper:has(> .st-key-page-head) {
  position: sticky; top: 0; z-index: 6; background: PAPER;
}
.st-key-page-head {padding-right: 2.25rem; gap: 0 1rem; flex-wrap: wrap;}
.st-key-page-head > .stElementContainer {min-height: 3.75rem; align-content: center;}
.st-key-page-head h1 {padding: 0; white-space: nowrap;}
.st-key-page-head > .stLayoutWrapper {margin: .5rem 0 .5rem auto;}
.st-key-page-purpose {margin-top: -1.1rem;}
.st-key-page-purpose p {font-size: .9rem; line-height: 1.4; opacity: .8;}
[data-testid="stLogoSpacer"], :has(> [data-testid="stExpandSidebarButton"]) {
  display: flex; align-items: center; gap: .5rem; white-space: nowrap; overflow: visible;
}
[data-testid="stLogoSpacer"]::before, :has(> [data-testid="stExpandSidebarButton"])::after {
  content: "FD-KVC Lab"; font-size: 1.1rem; font-weight: 700;
}
:has(> header [data-testid="stExpandSidebarButton"]) {
  header {background: PAPER;}
  .stMainBlockContainer {padding-top: 3.75rem;}
  .stLayoutWrapper:has(> .st-key-page-head) {position: static;}
  .st-key-page-head {padding-right: 0;}
  .st-key-page-head > .stElementContainer {min-height: 2.5rem;}
  .st-key-page-purpose {margin-top: -.35rem;}
}
/* Actions that need a row of their own scroll away: below the title is the place of the stage's. */
@media (max-width: 1100px) {
  .stLayoutWrapper:has(> .st-key-page-head [data-testid="stButtonGroup"]),
  .st-key-page-head:has([data-testid="stButtonGroup"]) {display: contents;}
  .st-key-page-head:has([data-testid="stButtonGroup"]) > .stElementContainer {
    position: sticky; top: 0; z-index: 6; background: PAPER;
  }
  .st-key-page-head:has([data-testid="stButtonGroup"]) > .stLayoutWrapper {
    margin: -.75rem 0 .25rem;
  }
}
@media (max-width: 640px) {.stMainBlockContainer {padding-inline: 1rem;}}
""".replace("PAPER", f"light-dark({LIGHT.paper}, {DARK.paper})")

_PAGE = """
/* A step is shorter than the fading of what it replaces. */
.stElementContainer {transition: none !important; opacity: 1 !important;}
#vg-tooltip-element {white-space: pre-line;}
.stMainBlockContainer [data-testid="stHeading"] h2 {padding: .75rem 0 .5rem;}
.st-key-headline [data-testid="stHeading"] h2 {padding: 0 0 .3rem; line-height: 1.35;}
.st-key-headline:not(:empty) {padding-bottom: .4rem;}
/* Streamlit shows a link that has the focus as one that is pointed at. */
[data-testid="stSidebar"] :is(a, button, summary, [role="button"]):focus-visible,
[data-testid="stSidebar"] summary:focus-visible {
  outline: 2px solid currentColor !important; outline-offset: -2px;
}
/* What is wrong with a file is told to those who hear the page: to those who see it, too. */
[data-testid="stFileChip"]:has([role="alert"]) {flex-wrap: wrap; height: auto; max-width: 100%;}
[data-testid="stFileChip"] [role="alert"] {
  position: static; width: 100%; height: auto; margin: 0; clip: auto; clip-path: none;
  overflow: visible; white-space: normal; font-size: .85rem;
}
/* Streamlit's colours of code are too pale on its grounds. */
.stApp .token:is(.keyword, .function, .builtin, .class-name, .boolean, .decorator) {
  color: light-dark(#1a5294, #85b8f8);
}
.stApp .token:is(.string, .triple-quoted-string) {color: light-dark(#0c5a44, #7ed5b0);}
.stApp .token:is(.comment, .number, .punctuation, .operator) {color: light-dark(#5b5650, #b8b3a8);}
.stApp :is([data-testid="stCaptionContainer"], kbd) {opacity: .75;}
.stApp [data-variant="segmented_control"] p {color: light-dark(#262730, #fafafa);}
[data-testid="stBaseButton-primary"]:enabled {color: light-dark(#fff, #171614);}
/* Slanted letters lean out of their boxes: no formula is to scroll for that. */
.stApp .katex-display {overflow-y: hidden; padding: .5rem 3px; margin-inline: -3px;}
/* On a telephone the transcript needs the room; the sidebar has the same choice. */
@media (max-width: 640px) {.st-key-open-own-file {display: none;}}
/* What keeps the address is not to be seen. */
[class*="st-key-address"] {display: none;}
"""

# Panels stand side by side where there is room and below each other where there is not.
_PANELS = """
[class*="st-key-panels-"] {flex-wrap: wrap; align-items: flex-start;}
[class*="st-key-panels-"] > div {flex: 1 1 440px; min-width: min(440px, 100%);}
"""

_NUMBERS = """
[class*="st-key-verdicts-"] {row-gap: 0;}
[class*="st-key-verdicts-"] button {min-height: 1.75rem;}
.figures {display: grid; grid-template-columns: repeat(auto-fit, minmax(6.5rem, 1fr));}
.figures {gap: .3rem .75rem; font-variant-numeric: tabular-nums;}
.figures div {line-height: 1.25;}
.figures small {display: block; opacity: .7;}
.figures b {font-size: 1.15rem; font-weight: 600;}
.figures i {font-style: normal; font-size: .8rem; opacity: .8; white-space: nowrap;}
.figures div:last-child {grid-column: span 2;}
.scrolls {max-height: 18rem; overflow: auto; font-size: .85rem;}
/* The first step fills them: what stands below has its place from the beginning. */
.st-key-panel-difference .scrolls {height: 18rem;}
.st-key-difference-words {min-height: 4.8rem;}
.scrolls table {border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;}
.scrolls th {position: sticky; top: 0; backdrop-filter: blur(8px);}
.scrolls th, .scrolls td {padding: .1rem .4rem; text-align: right;}
.scrolls th {vertical-align: bottom; font-weight: 600; line-height: 1.2;}
.scrolls td {border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent);}
.scrolls th:first-child, .scrolls td:first-child {text-align: left;}
.scrolls td:first-child {min-width: 4.5rem;}
.st-key-comparison .scrolls {max-height: none;}
.st-key-comparison :is(th, td):is(:nth-child(2), :last-child) {text-align: left;}
.st-key-comparison td:last-child {min-width: 9rem;}
.numbers {columns: 17rem; column-gap: 1.5rem;}
.numbers span {display: block; break-inside: avoid;}
.numbers {font-size: .85rem; line-height: 1.5; font-variant-numeric: tabular-nums;}
"""

# Browsers that can open a box at a place open it at the turn.
_SAID = (
    """
div.said {overflow: auto; font-size: .92rem; line-height: 1.5;}
@supports (scroll-initial-target: nearest) {
  div.said {max-height: 34rem; resize: vertical;}
  .said tr.now th {scroll-initial-target: nearest; scroll-snap-align: center;}
}
.said table {border-collapse: collapse; min-width: 100%; table-layout: fixed; width: min-content;}
.said thead th {width: 10.5rem;}
.said thead th {
  position: sticky; top: 0; z-index: 1; backdrop-filter: blur(8px);
  background: color-mix(in srgb, Canvas 85%, transparent);
}
.said thead th:first-child, .said tbody th {width: 7.5rem;}
.said th {font-weight: 600; text-align: left; vertical-align: top; padding: .15rem .5rem;}
.said th small {display: block; font-weight: 400; opacity: .8;}
.said tbody th i {font-style: normal; font-weight: 400; opacity: .7; padding-right: .25rem;}
.said td {vertical-align: top; padding: .15rem .5rem; overflow-wrap: anywhere;}
.said tbody tr {border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent);}
.said tr.now {box-shadow: inset 3px 0 0 currentColor;}
.said mark, .said s, .said-key mark {border-radius: 3px; padding: 0 .08em;}
.said s, .said-key s {text-decoration: line-through; opacity: .72;}
.said-key {display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .85rem;}
"""
    + f":root {{--met: {MET}; --unmet: {UNMET};}}\n"
)

# Answers beside each other; a word's tint is the share of attention that it got.
_ANSWERS = """
.message, .earlier {padding: .2rem 0 .5rem;}
.message {font-size: 1.05rem; scroll-margin-top: 4rem;}
:is(.message, .earlier) b {font-weight: 600; padding-right: .4rem;}
.earlier summary {cursor: pointer; font-size: .9rem;}
.earlier p {margin: .15rem 0 0; font-size: .9rem;}
.earlier section {margin-top: .5rem;}
div:has(> .st-key-chat-input), .st-key-chat-input:not(div > div > *) {
  position: sticky; bottom: 0; z-index: 90; padding-block: .5rem;
  background: light-dark(#fff, #171614);
}
.answers {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); gap: .6rem;
}
.answers section {
  border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 8px;
  padding: .5rem .75rem; min-height: 8rem; overflow-wrap: anywhere;
}
.answers small {display: block; opacity: .8;}
.answers p {margin: .4rem 0 0;}
.answers mark, .looked mark {color: inherit; background: none; border-radius: 3px;}
.answers mark {border-bottom: 2px dashed var(--unmet); border-radius: 0;}
.chips {padding: .3rem 0 0;}
.chips span {
  display: inline-block; border: 1px solid; border-radius: 4px; padding: 0 .35rem; margin: .1rem 0;
  font-size: .9rem;
}
.chips .met {border-color: color-mix(in srgb, var(--met) 70%, currentColor);}
.chips .unmet {border: 2px dashed var(--unmet); font-weight: 600;}
.chips i {font-weight: 400;}
.looked mark, .looked s {
  background: color-mix(in srgb, var(--tint) calc(var(--share) * 60%), transparent);
}
.said.looked s {opacity: 1;}
.looked {--tint: #0072B2;}
.looked s {--tint: var(--unmet);}
.looked s.partly {text-decoration-style: dotted;}
.heat td {background: color-mix(in srgb, var(--unmet) calc(var(--share) * 60%), transparent);}
.scrolls.back, .scrolls.heat {max-height: none;}
.heat th[scope="row"] {position: static; vertical-align: middle;}
.back th[scope="row"], .back td {text-align: left; vertical-align: top;}
.back th:not(:first-child) {text-align: left;}
.back td {min-width: 7rem;}
.back th small {display: block; font-weight: 400; opacity: .85; min-width: 6rem;}
.looked .asked {outline: 2px solid currentColor;}
"""

# The stage begins as high as it can, so that all of it is seen at once.
_STAGE = """
.st-key-turn-figures {min-height: 2.6rem;}
[class*="-stage-view"], [class*="-stage-answer"] {display: none;}
/* Until a run of the page has ended, the stage that it began with stands beside the new one. */
.stMainBlockContainer:has([data-stale="false"] .stage) [data-stale="true"]:has(.stage) {
  display: none;
}
.stMainBlockContainer:has(.st-key-turn-figures) .stage {--stage-above: 250px;}
.stMainBlockContainer:has(.st-key-walk-stop) .stage {--stage-above: 330px;}
.stMainBlockContainer:has(.st-key-headline) .stage {--stage-above: 240px;}
.st-key-walk-stop .stAlertContainer {padding: .5rem .9rem;}
.st-key-algorithm {gap: .25rem;}
/* Each view of the head is in sight on a telephone, and its buttons take as few rows as can be. */
@media (max-width: 1100px) {
  .st-key-page-head .stHorizontalBlock {gap: .5rem;}
  .st-key-page-head [data-variant="segmented_control"] {padding-inline: .6rem;}
}
"""

STYLE = f"<style>{_FRAME}{_PAGE}{_PANELS}{_NUMBERS}{_SAID}{_ANSWERS}{_STAGE}</style>"
"""Style sheet of every page."""
