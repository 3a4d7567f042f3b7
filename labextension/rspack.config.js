// By name: two module ids would otherwise depend on where the checkout is, and with them the names of the files.
module.exports = { context: __dirname, optimization: { moduleIds: 'named', chunkIds: 'named' } };
