"""Limits of input size, memory and time. The ranges of user settings are in `parameters`."""

# Files that are read
MAX_DIALOG_FILE_BYTES = 50_000_000
MAX_PACKED_PARTS = 10_000  # of a compressed file, or files of an archive
MAX_XZ_MEMORY_BYTES = 2**27  # to unpack; `xz -9` needs half
MAX_SAMPLED_BYTES = 65_536  # to name an encoding that is not read
MAX_DIALOG_FILE_LINES = 1_000_000  # of plain text or JSON Lines
MAX_SAMPLED_LINES = 64  # by which a log of a coding agent is recognized
MAX_SAMPLED_CHARACTERS = 1_000_000  # of each sampled line; longer ones are passed over
MAX_NAMED_LINES = 3  # unreadable lines that a message names; it counts the others
MAX_JSON_DEPTH = 32  # nested lists and objects; the supported formats need 12
MAX_JSON_VALUES = 3_000_000  # a parsed value takes about 100 bytes
MAX_JSON_TEXT_BYTES = 12_000_000  # of one string; a million characters fit, even if escaped
MAX_LITERAL_CHARACTERS = 20_000  # of a call in Python syntax; a parsed value takes about 1 kB
MAX_PLACES = 10_000  # of lists of objects in which messages are looked for
MAX_MODEL_JSON_BYTES = 50_000_000  # large tokenizers take 34 million
MAX_MODEL_JSON_VALUES = 5_000_000  # large tokenizers list a million words and merges
MAX_GGUF_NAMES = 20_000  # of fields and tensors; a model of 1024 layers has 9,300
MAX_GGUF_VALUES = 1_000_000  # of its fields: tokens, their types, and merges
MAX_GGUF_HEADER_BYTES = 16_000_000  # a vocabulary of 128,000 takes 8 million
MAX_STORED_MODELS = 200  # of a store of Ollama, Hugging Face or LM Studio
MAX_MANIFEST_BYTES = 100_000  # of a model of Ollama; takes about 1,000
MAX_TOKENIZER_PARTS = 32  # of a processing step; known tokenizers have 5
MAX_TOKENIZER_PART_CHARACTERS = 20_000  # of its JSON, without its map of characters
MAX_TOKENIZER_INSERTED = 64  # characters that a part inserts into a text at once
MAX_TOKENIZER_GROWTH = 16  # factor by which a step's replacements may lengthen a text
MAX_PATTERN_SECONDS = 5  # to try its regular expressions; those of known tokenizers take 0.8
MAX_ADDED_TOKEN_CHARACTERS = 1_000_000  # in total
MAX_UNIGRAM_CHARACTERS = 2_500_000  # of the vocabulary; each takes up to 340 bytes
MAX_TEMPLATE_CHARACTERS = 200_000  # of a chat template; known ones have up to 20,000
MAX_TEMPLATE_SECONDS = 2  # of CPU time for rendering a dialog, in a process of its own
MAX_TEMPLATE_WAIT = 20  # elapsed seconds, for systems without a CPU limit and busy machines
MAX_TEMPLATE_BYTES = 64 * 2**20  # of memory for rendering it
MAX_TEMPLATE_TEXT = 4_000_000  # characters that it writes for a dialog, or for all probes
MAX_RUN_JSON_BYTES = 1_000_000  # run.json files of this project are smaller

# Dialogs
MAX_DIALOGS = 2000  # of a file
MAX_TURNS = 8192  # of a dialog; with 820,000 tokens, its replay takes 1.4 GB
MAX_SCRIPTED_TURNS = 2048  # of a synthetic dialog
MAX_TOKENS = 1_000_000  # of a dialog; its vectors take 1 kB a token
MAX_SHOWN_TOKENS = 131_072  # of a dialog on a page, in words; of a session under vectors
MAX_TURN_TOKENS = 32_768  # of a turn
MAX_DIALOG_CHARACTERS = 8_000_000  # of a dialog
MAX_SHOWN_CHARACTERS = 1_000_000  # of a dialog on a page
MAX_SPANNED_CHARACTERS = 1_000_000  # of all annotated slots of a dialog
MAX_NAME_CHARACTERS = 128  # of the name of a dialog, a speaker, a topic or a slot
MAX_TOPICS = 32  # of a dialog, and its services: a batch keeps topics as bits of one number
MAX_DEMANDS = 4096  # of a dialog
MAX_DEMAND_CHARACTERS = 4_000_000  # of the values that a dialog demands, and their mentions
MAX_WORDINGS = 8  # of a demanded value; the rest is ignored
MAX_MENTIONS = 32  # of a wording, the newest
MAX_SESSION_TOKENS = 6_000_000  # of a session; the search for values takes 300 bytes per word
MAX_CONTEXT_MESSAGES = 5_000_000  # in all contexts of a session together
MAX_SESSION_FILES = 2_000  # of a folder of sessions
MAX_COMPARED_COMPACTIONS = (
    40  # of a session, with other ways: 2 s each where 3,000 messages stay
)
MAX_SESSION_VALUES = 20_000  # that the calls of a session need
MAX_UNREAD_KINDS = 24  # kinds of unread fields and parts that are named; the others are summed

# Runs
MAX_POLICY_CHARACTERS = 1000  # of a policy with hyperparameters and wrappers
MAX_KEPT_TOKENS = (
    600_000  # whose lexical vectors all workers keep: 440 MB; half, any one process
)
MAX_CHUNK_NUMBERS = 2**25  # float32 numbers of the dialogs of a chunk: 128 MB
MAX_BLOCK_LOGITS = 2**23  # of all caches that read a text side by side: 34 MB
MAX_RESULT_NUMBERS = 2**27  # float32 numbers of a run's results: 512 MB
MAX_QUERY_LOGITS = 2**27  # queries of a turn × earlier tokens: 512 MB
MAX_RUN_NAMES = 512  # policies of a run, or scenarios, or metrics
MAX_CACHED_WORDS = 2**15  # whose id or surprisal is cached
MAX_SPELLED_CHARACTERS = 256  # of a word; sorting its accents takes quadratic time
MAX_RESTORED_SPANS = 8  # restored one at a time to see which one repairs an answer
MAX_WRITTEN_TOKENS = 128  # that a model generates
MAX_REWRITTEN_TOKENS = 20  # that a large model generates, about ten times, with restored words
MAX_REPEATS = 6  # repetitions of the same tokens that end a passage of a chat
MAX_REPEATED = 48  # tokens of a cycle whose third repetition ends the passage, too
MAX_CALLS = 2  # tool calls of a model before the words of a turn

# Files that are written
MAX_ENTRY_ROWS = 1_000_000  # of a table of entries
MAX_EXPLAINED_ENTRIES = 2000  # of one view, explained in full: about 2 ms and 20 bytes each

# Pages: what one view shows and one session computes
MAX_UPLOAD_MEGABYTES = 50  # of a file of dialogs as text
MAX_READ_MEGABYTES = 256  # of a model's vectors of the dialogs that it read
MAX_RUNNING_JOBS = 2  # simultaneous runs of the pages; others wait
MAX_ENDED_JOBS = 20  # failed or cancelled jobs that are kept, to report why
MAX_RESULTS_MEGABYTES = 128  # of stored results
MAX_STORED_MEGABYTES = (
    512  # of uploads, what models read, chats, runs and derived data together
)
MAX_ANSWERS_MEGABYTES = 64  # of cached answers of a language model
MAX_CHAT_MEGABYTES = 240  # of the vectors of one chat under all caches
MAX_MEASURED_DIALOGS = 600  # of a file
MAX_MEASURED_CHARACTERS = 4_000_000  # of all measured dialogs
MAX_RECORDED_ENTRIES = 200_000  # of a shown dialog; a longer one is recomputed turn by turn
MAX_KEPT_ENTRIES = 2**24  # cached after the turns of a long dialog: 67 MB
MAX_SHOWN_BUDGET = 8192  # of a real dialog
MAX_JOINT_ENTRIES = 1_000_000  # over turns and heads, if heads decide together
MAX_SCHEDULE_TURNS = 60  # of a synthetic dialog
MAX_LINK_CHARACTERS = 10_000  # of a value in a link
MAX_LANES = 6  # policies side by side on a stage
MAX_DRAWN_POLICIES = 8  # in one figure, distinguished by colour, dash and shape
MAX_BENCHMARK_POLICIES = 12  # of a run
MAX_ANSWERING_POLICIES = 5  # each with its own cache of a language model
MAX_TYPED_CHARACTERS = 2000  # of a typed conversation, which becomes part of the link
MAX_SWEEP_VALUES = 12  # of a hyperparameter; with two of them, its square is the most settings
